"""The predictor of docs/guides/write-a-predictor.md, registered as printed there -> the verdict of the printed test."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from mlmodelscope.core import predictor as port
from mlmodelscope.core.plugins import predictors
from mlmodelscope.predictors.port import CODES
from mlmodelscope.testing.predictors import PredictorContract

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "write-a-predictor.md"
ABILITIES = [getattr(port, name) for name in port.__all__ if name not in ("Predictor", "Tensors")]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


PREDICTOR, TEST = blocks("python")
[TABLE] = blocks("toml")
printed = {}
exec(compile(TEST, f"{GUIDE}: the test", "exec"), printed)


@pytest.fixture(autouse=True)
def _installed(tmp_path, monkeypatch):
    """The package of the guide on the path, with the metadata that an installer would write from its table."""
    [(name, place)] = tomllib.loads(TABLE)["project"]["entry-points"]["mlmodelscope.predictors"].items()
    package, _, module = place.partition(":")[0].partition(".")
    site = tmp_path / "site"
    metadata = site / f"{package}-1.0.dist-info"
    (site / package).mkdir(parents=True)
    (site / package / f"{module}.py").write_text(PREDICTOR)
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[mlmodelscope.predictors]\n{name} = {place}\n")
    monkeypatch.syspath_prepend(str(site))
    predictors.cache_clear()
    yield
    predictors.cache_clear()
    for loaded in [one for one in sys.modules if one.partition(".")[0] == package]:
        del sys.modules[loaded]


class TestTheExample(printed["TestMatrix"]):
    """Every test of the suite, by the class that the guide prints."""

    def test_it_is_a_predictor_of_the_guide(self, predictor):
        assert issubclass(printed["TestMatrix"], PredictorContract)
        assert isinstance(predictor, port.Predictor)
        assert predictor.name in predictors().names()

    def test_threads_are_those_that_have_work(self, predictor, case):
        assert predictor.load(self.model(case.open_batch, threads=8))["threads"] == 3

    def test_a_list_is_no_matrix(self, predictor, case, tmp_path):
        (tmp_path / "list.json").write_text("[[1, 2]]")
        with pytest.raises(Exception, match="is no matrix") as caught:
            predictor.load(self.model(str(tmp_path / "list.json")))
        assert caught.value.code == "model_format"


@pytest.mark.parametrize("code", CODES)
def test_the_guide_explains_every_code(code):
    assert f"| `{code}` |" in GUIDE.read_text()


@pytest.mark.parametrize("ability", ABILITIES, ids=lambda ability: ability.__name__)
def test_the_guide_lists_every_ability_with_its_calls(ability):
    row = next(line for line in GUIDE.read_text().splitlines() if line.startswith(f"| `{ability.__name__}` |"))
    calls = [name for name in vars(ability) if not name.startswith("_")]
    assert calls
    assert [call for call in calls if f"`{call}(" not in row] == []
