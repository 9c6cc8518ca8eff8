import json
import platform
import sys

import pytest

from mlmodelscope.core.errors import EnvironmentMissingError
from mlmodelscope.core.value import canonical_json
from mlmodelscope.provision.containers.image import ImageFacts, Interpreter, image_for, parse_probe
from mlmodelscope.provision.containers.probe import MARK, describe

IMAGES = {"amd64": {"cpu": "a:cpu", "gpu": "a:gpu"}, "arm64": {"cpu": "b:cpu"}, "ppc64le": {"gpu": "c:gpu"}}


def interpreter(path="/usr/bin/python3", version="3.11.7", numpy="2.0.0", **packages):
    return Interpreter(path=path, version=version, numpy=numpy, packages=packages)


def facts(*interpreters):
    return ImageFacts(
        name="an:image", digest="sha256:00", architecture="amd64", size_bytes=1, interpreters=interpreters
    )


@pytest.mark.parametrize(
    ("machine", "has_gpu", "image"),
    [
        ("x86_64", False, "a:cpu"),
        ("amd64", True, "a:gpu"),
        ("aarch64", True, "b:cpu"),
        ("ppc64le", False, None),
        ("ppc64le", True, "c:gpu"),
        ("riscv64", True, None),
    ],
)
def test_the_image_for_a_machine(machine, has_gpu, image):
    assert image_for(IMAGES, machine, has_gpu) == image


def test_a_manifest_may_use_the_kernels_names():
    assert image_for({"x86_64": {"CPU": "a"}}, "amd64", False) == "a"


def test_the_first_fit_interpreter_is_taken():
    old, bare, fit = interpreter("/a", "2.7.18"), interpreter("/b", numpy=None), interpreter("/c", "3.6.15", "1.19.5")
    assert facts(old, bare, fit).python == "/c"
    assert facts(old, bare, fit).python_version == "3.6.15"
    assert facts(old, bare, fit).numpy == "1.19.5"


def test_the_interpreter_that_has_the_framework_is_preferred():
    plain, with_torch = interpreter("/a"), interpreter("/b", torch="2.0")
    assert facts(plain, with_torch).interpreter("torch").path == "/b"
    assert facts(plain, with_torch).interpreter("caffe").path == "/a"


@pytest.mark.parametrize(
    ("interpreters", "missing", "words"),
    [
        ((), "python", "has no Python"),
        ((interpreter(version="2.7.18"), interpreter(version="3.5.2")), "python", "only 2.7.18, 3.5.2"),
        ((interpreter(numpy=None),), "numpy", "no numpy for its Python 3.11.7"),
    ],
)
def test_what_an_image_lacks(interpreters, missing, words):
    with pytest.raises(EnvironmentMissingError, match=words) as caught:
        facts(*interpreters).interpreter()
    assert caught.value.fields["missing"] == missing
    assert "numpy and the framework" in caught.value.hint


@pytest.mark.parametrize(
    ("version", "is_new"), [("3.6.0", True), ("3.10.1", True), ("3.5.9", False), ("2.7.18", False), ("3.x", False)]
)
def test_versions_are_compared_as_numbers(version, is_new):
    assert interpreter(version=version).is_new_enough is is_new


def test_a_probe_is_read_among_other_words():
    told = canonical_json(interpreter())
    output = f"Welcome!\n\n{MARK}{told}\n{MARK}{told}\n{MARK}{{broken\n{MARK}[1]\n{MARK}{{}}\nbye\n"
    assert parse_probe(output) == (interpreter(),)


def test_the_probe_describes_this_interpreter():
    import numpy
    import pydantic

    (found,) = parse_probe(MARK + json.dumps(describe()))
    assert found.is_fit
    assert found.version == platform.python_version()
    assert found.numpy == numpy.__version__ == found.packages["numpy"]
    assert found.packages["pydantic"] == pydantic.VERSION
    assert "typing-extensions" in found.packages
    assert set(found.libraries) <= {"blas", "glibc"}


def test_the_first_cause_of_a_broken_numpy_is_told(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text(
        "try:\n    raise OSError('libx.so: cannot open\\nmore')\n"
        "except OSError as error:\n    raise ImportError('PLEASE READ') from error\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert describe()["numpy_problem"].startswith("ModuleNotFoundError: ")
    monkeypatch.delitem(sys.modules, "numpy")
    assert describe()["numpy_problem"] == "OSError: libx.so: cannot open"
