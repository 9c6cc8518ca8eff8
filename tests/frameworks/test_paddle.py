"""What only Paddle does: oneDNN or its own kernels, and parameters that may not be those of the program."""

from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened

pytestmark = pytest.mark.needs("registry", "pythons")


@pytest.fixture(scope="module")
def predictor():
    with opened("paddle") as found:
        yield found


def test_onednn_is_reported_with_its_version_and_can_be_switched_off(predictor):
    x = np.random.default_rng(1).standard_normal((2, 3, 32, 32), dtype=np.float32)
    answers = {}
    for switch, provider, library in (("on", "oneDNN", "oneDNN 3"), ("off", "phi", "MKL")):
        facts = predictor.load(exported_model("paddle", "convolutional", options={"onednn": switch}))
        assert (facts["provider"], facts["precision"]) == (provider, "float32")
        assert facts["library"].startswith(library)
        answers[switch] = predictor.predict([x])[0]
    np.testing.assert_allclose(answers["on"], answers["off"], atol=1e-6)


def test_the_rewriting_can_be_switched_off(predictor):
    assert predictor.load(exported_model("paddle", "linear", options={"optimization": "off"}))["optimization"] == "off"


def test_parameters_beside_the_program_are_found(predictor):
    model = exported_model("paddle", "linear", weights_path=None)
    predictor.load(model)
    assert predictor.predict([np.ones((1, 4), np.float32)])[0].tolist() == [[-14, 22, 39]]


@pytest.mark.parametrize("content", [None, b"", b"cut short"])
def test_absent_or_damaged_parameters_are_refused(predictor, tmp_path, content):
    path = tmp_path / "network.pdiparams"
    if content is not None:
        whole = Path(exported_model("paddle", "linear")["weights_path"]).read_bytes()
        path.write_bytes(whole[:40] if content else content)
    with pytest.raises(PredictorFault) as caught:
        predictor.load(exported_model("paddle", "linear", weights_path=str(path)))
    assert caught.value.code == "model_format"
