"""Turns the entry points of the installed packages into plug-ins found by name, each loaded when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mlmodelscope.core.errors import RegistryError, UnknownNameError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from mlmodelscope.core.predictor import Predictor

__all__ = ["PREDICTOR_ALIASES", "PREDICTOR_GROUP", "Registry", "installed_version", "predictors"]

PREDICTOR_GROUP = "mlmodelscope.predictors"
# names that manifests use for a framework; case and separators are of no account, so "ONNX-Runtime" needs no entry
PREDICTOR_ALIASES: Mapping[str, str] = {
    "aiedgelitert": "tflite",
    "litert": "tflite",
    "ort": "onnxruntime",
    "tensorflowlite": "tflite",
    "tfliteruntime": "tflite",
}
_PREDICTOR_PARTS = ("name", "packages", "environment", "formats", "load", "predict", "unload")


class Registry:
    """The plug-ins of one entry-point group. Listing reads package metadata only; `get` imports the one asked for.

    Names are matched whatever their case and separators. `kind` is the word for one plug-in in messages, `parts` are
    the attributes every plug-in must have, `find` yields the entry points of a group (those installed, unless a test
    says otherwise). Not thread-safe.
    """

    def __init__(
        self,
        group: str,
        *,
        kind: str = "plug-in",
        aliases: Mapping[str, str] | None = None,
        parts: Sequence[str] = (),
        find: Callable[[str], Iterable[EntryPoint]] | None = None,
    ) -> None:
        self.group = group
        self.kind = kind
        self._aliases = {_key(alias): name for alias, name in (aliases or {}).items()}
        self._parts = parts
        self._find = find or _installed_entry_points
        self._found: dict[str, list[EntryPoint]] | None = None
        self._loaded: dict[str, Any] = {}

    def names(self) -> list[str]:
        """Every registered name, sorted; a name two packages claim is listed once and refused by `get`."""
        return sorted(points[0].name for points in self._points().values())

    def canonical(self, name: str) -> str:
        """The registered spelling of a name or alias."""
        return self._claims(name)[0].name

    def get(self, name: str) -> Any:
        """The plug-in itself. Raises UnknownNameError, or RegistryError when claimed twice or impossible to load."""
        claims = self._claims(name)
        point = claims[0]
        if len(claims) > 1:
            owners = sorted(f"{_owner(claim)} ({claim.value})" for claim in claims)
            raise RegistryError(
                f"{self.kind} {point.name!r} is registered by {' and by '.join(owners)}",
                hint="uninstall all but one of these packages",
                group=self.group,
                name=point.name,
                owners=owners,
            )
        if point.name not in self._loaded:
            self._loaded[point.name] = self._load(point)
        return self._loaded[point.name]

    def _load(self, point: EntryPoint) -> Any:
        try:
            plugin = point.load()
        except Exception as error:  # a plug-in's module is foreign code: it can fail in any way
            raise RegistryError(
                f"{self.kind} {point.name!r} cannot be loaded from {point.value}: {type(error).__name__}: {error}",
                hint=f"reinstall or remove the package {_owner(point)}",
                group=self.group,
                name=point.name,
                owner=_owner(point),
            ) from error
        missing = [part for part in self._parts if not hasattr(plugin, part)]
        if missing:
            raise RegistryError(
                f"{self.kind} {point.name!r} ({point.value}) lacks {', '.join(missing)}",
                hint=f"update or remove the package {_owner(point)}",
                group=self.group,
                name=point.name,
                owner=_owner(point),
                missing=missing,
            )
        return plugin

    def _claims(self, name: str) -> list[EntryPoint]:
        points = self._points()
        key = _key(name)
        claims = points.get(key) or points.get(_key(self._aliases.get(key, "")))
        if claims is None:
            raise UnknownNameError(self.kind, name, self.names())
        return claims

    def _points(self) -> dict[str, list[EntryPoint]]:
        if self._found is None:
            found: dict[str, list[EntryPoint]] = {}
            seen: set[tuple[str, str, str]] = set()
            for point in self._find(self.group):
                # one package seen through two folders of the path is no collision
                identity = (_key(point.name), point.value, _owner(point))
                if identity not in seen:
                    seen.add(identity)
                    found.setdefault(_key(point.name), []).append(point)
            self._found = found
        return self._found


@cache
def predictors() -> Registry:
    """The registry of predictors, ours and third parties'; one per process."""
    return Registry(PREDICTOR_GROUP, kind="framework", aliases=PREDICTOR_ALIASES, parts=_PREDICTOR_PARTS)


def installed_version(predictor: type[Predictor]) -> tuple[str, str] | None:
    """The framework's distribution and version here, from package metadata alone; None when it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    for distribution in predictor.packages:
        try:
            return distribution, version(distribution)
        except PackageNotFoundError:
            continue
    return None


def _installed_entry_points(group: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=group)


def _key(name: str) -> str:
    return "".join(character for character in name.casefold() if character not in "-_. ")


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"
