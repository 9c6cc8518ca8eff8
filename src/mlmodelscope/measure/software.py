"""The running interpreter -> Software: its packages, the native libraries that decide results, its variables."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from mlmodelscope.core.record import Software
from mlmodelscope.core.request import Environment
from mlmodelscope.core.settings import child_environment
from mlmodelscope.core.variables import recorded_variables

__all__ = ["installed_packages", "loaded_libraries", "parse_opencv_build", "read_software"]

_PILLOW_LIBRARIES = {"libjpeg_turbo": "libjpeg-turbo", "jpg": "libjpeg", "zlib": "zlib", "webp": "libwebp"}


def read_software(
    *,
    framework: str,
    framework_version: str,
    distribution: str,
    environment: Environment,
    variables: Mapping[str, str] | None = None,
) -> Software:
    """The software of this process. Call it in the worker after the measurement: a library not loaded by then decided
    nothing. `variables` is the environment to choose from (None: this process's)."""
    packages = installed_packages()
    return Software(
        mlmodelscope=packages.get("mlmodelscope", "not installed"),
        framework=framework,
        framework_version=framework_version,
        distribution=distribution,
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        environment=environment,
        packages=packages,
        variables=recorded_variables(child_environment() if variables is None else variables),
        libraries=loaded_libraries(),
    )


def installed_packages(
    distributions: Iterable[importlib.metadata.Distribution] | None = None,
) -> dict[str, str]:
    """Every installed distribution, normalised name to version, sorted. Of two with one name the first on the path is
    kept, since that is the one imported; one without a name or version is a leftover of a broken uninstall."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions() if distributions is None else distributions:
        # one access: each parses the whole file again
        metadata: Any = distribution.metadata
        values = {} if metadata is None else {field: metadata.get(field) for field in ("Name", "Version")}
        name, version = values.get("Name"), values.get("Version")
        if name and version:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return dict(sorted(found.items()))


def loaded_libraries(modules: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Versions of the native libraries inside the modules that are loaded, as `module.library`; nothing is loaded for
    the question."""
    loaded = sys.modules if modules is None else modules
    found: dict[str, str] = {}
    if "PIL.Image" in loaded:
        found |= _pillow()
    if "cv2" in loaded:
        found |= _opencv(loaded["cv2"])
    if "numpy" in loaded:
        found |= _numpy(loaded["numpy"])
    return dict(sorted(found.items()))


def parse_opencv_build(text: str) -> dict[str, str]:
    """OpenCV's build information -> the versions of its image decoders; a system library's path is dropped."""
    found = {}
    for name in ("JPEG", "PNG", "WEBP"):
        match = re.search(rf"^ +{name}: +(.*?)(?:\s*\(ver (.*)\))?$", text, re.MULTILINE)
        if match and match[2]:
            build = match[1].rpartition("/")[2]
            found[f"opencv.{name.lower()}"] = f"{build} {match[2]}".strip()
    return found


def _pillow() -> dict[str, str]:
    from PIL import features

    versions = {label: features.version(name) for name, label in _PILLOW_LIBRARIES.items()}
    if versions.get("libjpeg-turbo"):
        versions.pop("libjpeg")  # its interface level, which says nothing of the decoder
    return {f"pillow.{label}": str(version) for label, version in versions.items() if version}


def _opencv(cv2: Any) -> dict[str, str]:
    return {"opencv": str(cv2.__version__)} | parse_opencv_build(cv2.getBuildInformation())


def _numpy(numpy: Any) -> dict[str, str]:
    try:
        blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    except (KeyError, TypeError):  # numpy before 1.25 prints and has no such argument
        return {}
    name, version = blas.get("name"), blas.get("version")
    return {"numpy.blas": " ".join(str(part) for part in (name, version) if part)} if name else {}
