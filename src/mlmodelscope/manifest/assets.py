"""Turns the ways a manifest names a file (location, checksum, converter) into an `Asset`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlmodelscope.core.asset import Asset, Checksum, Conversion, parse_location, public_location
from mlmodelscope.core.manifest import ModelSource
from mlmodelscope.manifest.fields import Field, Section

__all__ = ["ASSET_KEYS", "AssetKeys", "read_asset", "read_asset_keys", "read_source"]

_HEX = re.compile(r"(?:[0-9a-fA-F]{64}|[0-9a-fA-F]{32})\Z")
_ABSOLUTE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+:|/)")


@dataclass(frozen=True, slots=True)
class AssetKeys:
    """The keys beside each other that describe one asset in a model manifest."""

    location: str
    checksum: str
    convert: str


ASSET_KEYS: dict[str, AssetKeys] = {
    "features": AssetKeys("features_url", "features_checksum", "features_convert"),
    "labels": AssetKeys("labels_url", "labels_checksum", "labels_convert"),
    "graph": AssetKeys("graph_path", "checksum", "convert"),
    "weights": AssetKeys("weights_path", "weights_checksum", "weights_convert"),
}


def read_asset_keys(section: Section, name: str, base: str = "", separator: str = "/") -> Asset | None:
    """The asset `name` of `ASSET_KEYS` from its keys in `section`; None if it is not there."""
    keys = ASSET_KEYS[name]
    located = section.take(keys.location)
    other = (f"{name}_checksum",) if keys.checksum == "checksum" else ()
    checksum = section.take(keys.checksum, *other)
    convert = section.take(keys.convert)
    if located is None:
        for extra in (checksum, convert):
            if extra is not None:
                extra.warn("ignored", f"has no effect without {keys.location}")
        return None
    return _asset(_read_locations(located, base, separator), checksum, convert)


def read_asset(found: Field) -> Asset | None:
    """An asset on its own: a location, a list of alternatives, or a mapping of location(s), checksum and convert."""
    if not found.is_mapping:
        return _asset(_read_locations(found), None, None)
    section = Section(found)
    located = section.need("location", "locations")
    checksum, convert = section.take("checksum"), section.take("convert")
    section.finish()
    return None if located is None else _asset(_read_locations(located), checksum, convert)


def read_source(found: Field) -> tuple[ModelSource | None, Asset | None]:
    """The model's files, and the labels where the legacy form keeps them beside the model (`features_path`)."""
    if not found.is_mapping:
        graph = read_asset(found)
        return (None if graph is None else ModelSource(graph=graph)), None
    section = Section(found)
    base_field = section.take("base_url")
    base = (base_field.text() or "").strip() if base_field is not None else ""
    is_archive = section.read("is_archive", Field.boolean, False)
    if is_archive and not base:
        found.error("missing", "is_archive needs base_url, the location of the archive")
    separator = "!" if is_archive else "/"
    section.need("graph_path")
    graph = read_asset_keys(section, "graph", base, separator)
    weights = read_asset_keys(section, "weights", base, separator)
    labels_at, labels_sum = section.take("features_path"), section.take("features_checksum")
    labels = None
    if labels_at is not None:
        labels = _asset(_read_locations(labels_at, base, separator), labels_sum, None)
    section.finish()
    return (None if graph is None else ModelSource(graph=graph, weights=weights)), labels


def _asset(locations: tuple[str, ...], checksum: Field | None, convert: Field | None) -> Asset | None:
    hashed = None if checksum is None else _read_checksum(checksum)
    conversion = None if convert is None else _read_conversion(convert)
    if not locations:
        return None
    return Asset(locations=locations, checksum=hashed, conversion=conversion)


def _read_locations(found: Field, base: str = "", separator: str = "/") -> tuple[str, ...]:
    parts = found.items() if found.is_sequence else [found]
    if not parts:
        found.error("wrong_value", "expected at least one location")
    locations = []
    for part in parts:
        text = part.text()
        if text is None:
            continue
        joined = _join(base, text, separator)
        try:
            parse_location(joined)
            locations.append(joined)
        except ValueError as error:
            part.error("location", f"{public_location(joined)!r}: {error}")
    return tuple(locations)


def _join(base: str, path: str, separator: str) -> str:
    if not base or _ABSOLUTE.match(path) or not path:
        return path
    return base.rstrip("/") + separator + path


def _read_checksum(found: Field) -> Checksum | None:
    """`{sha256: ..., md5: ...}`, or the digits alone: 64 are SHA-256, 32 are MD5."""
    if found.is_scalar:
        digits = _read_digits(found)
        if digits is None:
            return None
        return Checksum(sha256=digits) if len(digits) == 64 else Checksum(md5=digits)
    section = found.section()
    if section is None:
        return None
    sha256 = section.read("sha256", lambda one: _read_digits(one, 64), None)
    md5 = section.read("md5", lambda one: _read_digits(one, 32), None)
    if "sha256" not in section and "md5" not in section:
        found.error("checksum", "expected sha256 or md5")
    section.finish()
    return Checksum(sha256=sha256, md5=md5)


def _read_digits(found: Field, count: int | None = None) -> str | None:
    text = (found.text() or "").strip()
    if _HEX.match(text) and count in (None, len(text)):
        return text.lower()
    if found.is_scalar:
        expected = "64 digits for SHA-256 or 32 for MD5" if count is None else f"{count} digits"
        found.error("checksum", f"expected {expected} (0-9, a-f), found {found.describe()}")
    return None


def _read_conversion(found: Field) -> Conversion | None:
    """`NAME`, or `{name: NAME, ...}` where every other key is an option of the converter."""
    if found.is_scalar:
        name = found.text() or ""
        if not name.strip():
            found.error("wrong_value", "expected the name of a converter")
        return Conversion(name=name)
    section = found.section()
    if section is None:
        return None
    name = section.need_text("name")
    options = {key: text for key in section.names if key != "name" and (text := _option(section, key)) is not None}
    return Conversion(name=name, options=options)


def _option(section: Section, key: str) -> str | None:
    found = section.take(key)
    return None if found is None else found.text()
