"""Software stacks: what a framework needs round it, and the packages that were chosen for that, each with its digest.

A need is what resolving decides (which framework in which range, which interpreters will do, which bounds the framework
forgot to state). A stack is what solving makes of it: every package pinned. The digest of a stack is the address of the
environment that is made from it, so that the same stack is made once and found again, here or from a record.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from mlmodelscope.core.value import Frozen, digest_of

__all__ = ["BuiltEnvironment", "PinnedPackage", "Stack", "StackNeed"]


class StackNeed(Frozen):
    """What must be installed beside nothing of ours. `python` are versions (`3.11`) that will do, the best first.

    `requirements` are PEP 508 texts, the framework's own first. `bounds` constrain packages that are not asked for by
    name but come along. `as_of` (a date, `2021-06-01`): only files published before it. `size_bytes` is what the
    environment will take on disk, about; `libraries` are shared libraries that the system must have.
    """

    framework: str
    distribution: str
    python: tuple[str, ...]
    requirements: tuple[str, ...]
    bounds: tuple[str, ...] = ()
    as_of: str | None = None
    size_bytes: int | None = None
    libraries: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return digest_of(self)


class PinnedPackage(Frozen):
    """One package of a stack. `sha256` is of the very file that was installed; None where nobody can tell."""

    name: str
    version: str
    sha256: str | None = None


class Stack(Frozen):
    """Every package of an environment, by name, and the interpreter (`3.11.7`) and platform they were chosen for."""

    python: str
    implementation: str
    platform: str
    packages: tuple[PinnedPackage, ...]

    @property
    def digest(self) -> str:
        """Of what decides a result: interpreter to the minor version, platform, names and versions."""
        return digest_of(
            {
                "python": ".".join(self.python.split(".")[:2]),
                "implementation": self.implementation,
                "platform": self.platform,
                "packages": [[package.name, package.version] for package in self.packages],
            }
        )

    def version_of(self, name: str) -> str | None:
        return next((package.version for package in self.packages if package.name == name), None)


class BuiltEnvironment(Frozen):
    """An environment on this machine that can be started: `python` is its interpreter's path, `folder` its root."""

    digest: str
    folder: str
    python: str
    stack: Stack
    variables: Mapping[str, str] = Field(default_factory=dict)
