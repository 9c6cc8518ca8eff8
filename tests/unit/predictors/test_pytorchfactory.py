import pytest

from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.pytorchfactory import _find


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('operator torchvision::nms does not exist')", "RuntimeError: operator torchvision::nms"),
        ("import absent_package", "ModuleNotFoundError: No module named 'absent_package'"),
        ("def make(:", "SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_missing_whatever_it_raises(tmp_path, monkeypatch, text, said):
    (tmp_path / "broken_factory.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PredictorFault) as caught:
        _find("broken_factory:make")
    assert caught.value.code == "environment_missing"
    assert said in caught.value.message
    assert (caught.value.fields["option"], caught.value.fields["module"]) == ("factory", "broken_factory")
    assert caught.value.hint
