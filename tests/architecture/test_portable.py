"""The portable layer stays portable: Python 3.6 syntax, the standard library, numpy, the framework, and itself."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mlmodelscope
from mlmodelscope.provision import portable

SOURCE = Path(mlmodelscope.__file__).parent
PORTABLE = sorted(path for pattern in portable.PORTABLE for path in SOURCE.glob(pattern))
MODULES = {".".join(("mlmodelscope", *path.relative_to(SOURCE).with_suffix("").parts)) for path in PORTABLE}
# by the beginning of a file's name: what it may import beyond the standard library and the portable layer, and there
# only inside a function
FRAMEWORKS = {
    "caffe": {"caffe", "caffe2", "google", "torch"},
    "cntk": {"cntk"},
    "jax": {"jax", "jaxlib"},
    "kserve": set(),
    "lightgbm": {"lightgbm", "scipy"},
    "mxnet": {"mxnet"},
    "ncnn": {"ncnn"},
    "onnxruntime": {"onnxruntime"},
    "opencv": {"cv2"},
    "openvino": {"openvino"},
    "paddle": {"paddle"},
    "pytorch": {"torch"},
    "tensorflow": {"h5py", "google", "keras", "tensorflow"},
    "tensorrt": {"tensorrt"},
    "tflite": {"ai_edge_litert", "tflite_runtime"},
    "torch": {"torch"},
    "xgboost": {"scipy", "xgboost"},
}
# runs in our own environment only: it speaks to a program elsewhere
OURS_ALONE = {"overgrpc.py": {"google", "grpc", "mlmodelscope"}}
LATER_THAN_3_6 = {
    "contextvars",
    "dataclasses",
    "graphlib",
    "importlib.metadata",
    "importlib.resources",
    "tomllib",
    "zoneinfo",
}
LIVES = """
import sys
from mlmodelscope.predictors import modelfile, null, onnxruntime, port, tflite
assert not {"onnxruntime", "ai_edge_litert", "tflite_runtime"} & set(sys.modules)
predictor = null.Predictor()
facts = predictor.load({"threads": 1, "options": {"outputs": [[2, 3]]}})
assert facts["outputs"][0]["shape"] == [2, 3]
assert list(predictor.predict([])[0].shape) == [2, 3]
predictor.unload()
try:
    predictor.predict([])
except port.PredictorFault as fault:
    assert fault.code == "predictor_failed"
else:
    raise SystemExit("predict after unload answered")
try:
    onnxruntime.Predictor().load({"graph_path": "absent.onnx", "threads": 1})
except port.PredictorFault as fault:
    assert fault.code in ("environment_missing", "model_format")
print(sys.version_info[:2])
"""


def imports_of(tree):
    """Each imported module, and whether the import is at the top of the file."""
    at_top = set(tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import has no package to start from in a foreign environment"
            yield node.module, node in at_top


@pytest.mark.parametrize("path", PORTABLE, ids=lambda path: path.name)
def test_portable_files_are_python_3_6(path):
    ast.parse(path.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize("path", PORTABLE, ids=lambda path: path.name)
def test_portable_files_import_nothing_else(path):
    for module, at_top in imports_of(ast.parse(path.read_text())):
        root = module.partition(".")[0]
        if root in OURS_ALONE.get(path.name, set()):
            continue
        if root == "mlmodelscope":
            assert module in MODULES
        elif root in sys.stdlib_module_names:
            assert module not in LATER_THAN_3_6 | {"__future__"}
        else:
            own = [names for start, names in FRAMEWORKS.items() if path.stem.startswith(start)]
            assert root in {"numpy"}.union(*own)
            assert not at_top, f"{module} is imported when the module is: put it inside load"


@pytest.mark.parametrize("path", PORTABLE, ids=lambda path: path.name)
def test_portable_files_avoid_what_3_6_lacks(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    assert not {node.attr for node in nodes if isinstance(node, ast.Attribute)} & {"removeprefix", "removesuffix"}
    assert not {node.arg for node in nodes if isinstance(node, ast.keyword)} & {"strict", "capture_output"}


def interpreters():
    """Python 3 interpreters of this machine by minor version."""
    found = {}
    for home in sorted(Path.home().glob(".pyenv/versions/3.*")):
        found.setdefault(int(home.name.split(".")[1]), str(home / "bin" / "python"))
    for minor in range(6, 11):
        path = shutil.which(f"python3.{minor}")
        if path:
            found.setdefault(minor, path)
    return {minor: path for minor, path in found.items() if minor >= 6 and Path(path).exists()}


@pytest.mark.needs("python3.6")
def test_portable_layer_lives_under_the_oldest_python(tmp_path):
    found = interpreters()
    if not found or min(found) >= 11:
        pytest.skip("no Python older than 3.11 on this machine")
    for path in PORTABLE:
        if path.name != "__init__.py":
            copy = tmp_path / "mlmodelscope" / path.relative_to(SOURCE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    done = subprocess.run(
        [found[min(found)], "-B", "-c", LIVES],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.strip() == str((3, min(found)))
