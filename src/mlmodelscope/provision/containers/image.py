"""What an engine and a probe say about an image -> ImageFacts; and a manifest's images -> the one for this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from mlmodelscope.core.errors import EnvironmentMissingError
from mlmodelscope.core.value import Frozen
from mlmodelscope.provision.containers.probe import MARK

__all__ = ["ImageFacts", "Interpreter", "container_words", "image_for", "parse_probe"]

_OLDEST_PYTHON = (3, 6)
# `uname -m` in the words of container images, for those that have two names
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "i386": "386"}


class Interpreter(Frozen):
    """A Python inside an image. `packages` have their normal names (small letters, hyphens).

    `numpy` is None where it cannot be imported; `numpy_problem` says why. `libraries` are versions by name, as far as
    they can be had without a compiler: `glibc`, `blas`.
    """

    path: str
    version: str
    implementation: str = "CPython"
    numpy: str | None = None
    numpy_problem: str | None = None
    packages: Mapping[str, str] = Field(default_factory=dict)
    libraries: Mapping[str, str] = Field(default_factory=dict)

    @property
    def is_new_enough(self) -> bool:
        parts = self.version.split(".")[:2]
        return all(part.isdecimal() for part in parts) and tuple(map(int, parts)) >= _OLDEST_PYTHON

    @property
    def is_fit(self) -> bool:
        """Whether the portable layer runs in it."""
        return self.is_new_enough and self.numpy is not None


class ImageFacts(Frozen):
    """An image on this machine in which the portable layer can run.

    `digest` is the image's id (`sha256:...`), which names its content on any machine; `repo_digest` is what a registry
    calls it, where it came from one. `interpreters` are in the order in which they were found, `PATH` first.
    """

    name: str
    digest: str
    repo_digest: str | None = None
    architecture: str
    os: str = "linux"
    size_bytes: int
    labels: Mapping[str, str] = Field(default_factory=dict)
    interpreters: tuple[Interpreter, ...]

    def interpreter(self, distribution: str | None = None) -> Interpreter:
        """The one to run a framework in: the first that has `distribution` installed, else the first that is fit.

        EnvironmentMissingError where none is.
        """
        fit = [found for found in self.interpreters if found.is_fit]
        if not fit:
            raise _unfit(self.name, self.interpreters)
        return next((found for found in fit if distribution in found.packages), fit[0])

    @property
    def python(self) -> str:
        """The path of the interpreter inside the image."""
        return self.interpreter().path

    @property
    def python_version(self) -> str:
        return self.interpreter().version

    @property
    def packages(self) -> Mapping[str, str]:
        return self.interpreter().packages

    @property
    def numpy(self) -> str | None:
        return self.interpreter().numpy

    @property
    def libraries(self) -> Mapping[str, str]:
        return self.interpreter().libraries


def _unfit(image: str, interpreters: tuple[Interpreter, ...]) -> EnvironmentMissingError:
    """Why an image cannot host the portable layer, of the interpreter that comes nearest."""
    needed = "an image needs Python 3.6 or newer, numpy and the framework (docs/guides/containers.md)"
    if not interpreters:
        return EnvironmentMissingError(f"the image {image} has no Python", hint=needed, image=image, missing="python")
    recent = next((found for found in interpreters if found.is_new_enough), None)
    if recent is None:
        versions = ", ".join(sorted({found.version for found in interpreters}))
        return EnvironmentMissingError(
            f"the image {image} has no Python 3.6 or newer, only {versions}", hint=needed, image=image, missing="python"
        )
    reason = recent.numpy_problem or "not installed"
    return EnvironmentMissingError(
        f"the image {image} has no numpy for its Python {recent.version} ({recent.path}): {reason}",
        hint=needed,
        image=image,
        missing="numpy",
    )


def parse_probe(output: str) -> tuple[Interpreter, ...]:
    """The interpreters that spoke, each once; other lines are an interpreter's or an image's own chatter."""
    found: dict[str, Interpreter] = {}
    for line in output.splitlines():
        if not line.startswith(MARK):
            continue
        try:
            told = Interpreter.model_validate(json.loads(line.removeprefix(MARK)))
        except (ValueError, ValidationError):
            continue
        found.setdefault(told.path, told)
    return tuple(found.values())


def container_words(machine: str) -> str:
    """An architecture as images name it: `x86_64` -> `amd64`."""
    return _ARCHITECTURES.get(machine.lower(), machine.lower())


def image_for(container: Mapping[str, Mapping[str, str]], machine: str, has_gpu: bool) -> str | None:
    """The manifest's image for this machine: the one for the GPU where there is one, else the one for the CPU.

    `machine` may be written either way (`x86_64`, `amd64`). None: the manifest names no image that could run here.
    """
    images: dict[str, Any] = {}
    for architecture, by_device in container.items():
        if container_words(architecture) == container_words(machine):
            images |= {device.lower(): image for device, image in by_device.items()}
    return (images.get("gpu") if has_gpu else None) or images.get("cpu")
