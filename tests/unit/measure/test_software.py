import sys
from email.message import Message
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from mlmodelscope.core.request import Environment
from mlmodelscope.measure.software import (
    installed_packages,
    loaded_libraries,
    parse_opencv_build,
    read_software,
)


def distribution(name: str | None, version: str | None) -> SimpleNamespace:
    metadata = Message()
    if name is not None:
        metadata["Name"] = name
    if version is not None:
        metadata["Version"] = version
    return SimpleNamespace(metadata=metadata)


def test_packages_are_normalised_and_sorted():
    found = installed_packages([distribution("ruamel.yaml_Clib", "2"), distribution("NumPy", "1.26")])
    assert list(found.items()) == [("numpy", "1.26"), ("ruamel-yaml-clib", "2")]


def test_of_two_packages_of_one_name_the_first_on_the_path_counts():
    assert installed_packages([distribution("a-b", "1"), distribution("A.B", "2")]) == {"a-b": "1"}


def test_leftovers_of_a_broken_uninstall_are_left_out():
    broken = [
        distribution(None, None),
        distribution("a", None),
        distribution(None, "1"),
        SimpleNamespace(metadata=None),
    ]
    assert installed_packages(broken) == {}


def test_this_interpreter():
    software = read_software(
        framework="null",
        framework_version="1.0",
        distribution="mlmodelscope",
        environment=Environment(),
        variables={"OMP_NUM_THREADS": "2", "HOME": "/home/someone"},
    )
    assert software.variables == {"OMP_NUM_THREADS": "2"}
    assert software.packages["numpy"] == np.__version__
    assert software.libraries["numpy.blas"]
    assert Image.__name__ in sys.modules
    assert any(name.startswith("pillow.libjpeg") for name in software.libraries)


def test_nothing_is_loaded_for_the_question():
    assert loaded_libraries({}) == {}


def test_opencv_says_which_decoders_it_carries():
    text = (
        "  Media I/O:\n"
        "    ZLib:                        build (ver 1.3.1)\n"
        "    JPEG:                        build-libjpeg-turbo (ver 3.1.2-70)\n"
        "    WEBP:                        NO\n"
        "    PNG:                         /usr/local/lib/libpng.so (ver 1.6.58)\n"
        "    JPEG 2000:                   build (ver 2.5.3)\n"
    )
    assert parse_opencv_build(text) == {"opencv.jpeg": "build-libjpeg-turbo 3.1.2-70", "opencv.png": "libpng.so 1.6.58"}
    module = SimpleNamespace(__version__="4.14.0", getBuildInformation=lambda: text)
    assert loaded_libraries({"cv2": module})["opencv"] == "4.14.0"


@pytest.mark.parametrize(
    ("config", "libraries"),
    [
        ({"Build Dependencies": {"blas": {"name": "mkl", "version": "2024.1"}}}, {"numpy.blas": "mkl 2024.1"}),
        ({"Build Dependencies": {"blas": {"name": "none"}}}, {"numpy.blas": "none"}),
        ({"Build Dependencies": {"blas": {}}}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_numpy_names_its_linear_algebra(config, libraries):
    assert loaded_libraries({"numpy": SimpleNamespace(show_config=lambda mode: config)}) == libraries
