"""Turns the fields that every kind of manifest has (name, version, licence, images, ...) into plain values."""

from __future__ import annotations

import re
from typing import Any

from mlmodelscope.core.errors import ConstraintError
from mlmodelscope.core.versions import parse_constraint, parse_version
from mlmodelscope.manifest.fields import Field, Section

__all__ = ["read_constraint", "read_container", "read_described", "read_description", "read_requirements"]

_DEVICE_WORDS = {"cpu": re.compile(r"(?:^|[-_.])cpu(?:$|[-_.])"), "gpu": re.compile(r"(?:^|[-_.])(?:gpu|cuda)")}


def read_described(section: Section) -> dict[str, Any]:
    """The values of name, version, description, license, references and attributes."""
    attributes = section.take("attributes")
    return {
        "name": section.need_text("name"),
        "version": _read_version(section),
        "description": section.read("description", read_description, ""),
        "license": section.read("license", Field.text, ""),
        "references": section.read("references", Field.texts, ()),
        "attributes": _read_attributes(attributes) if attributes is not None else {},
    }


def read_description(found: Field) -> str | None:
    """Without the line breaks at its ends, which only say how the YAML was folded."""
    text = found.text()
    return None if text is None else text.strip()


def read_constraint(found: Field) -> str | None:
    text = found.text()
    if text is None:
        return None
    try:
        constraint = parse_constraint(text)
    except ConstraintError as error:
        found.error("constraint", error.message, error.hint)
        return None
    if constraint.is_empty:
        found.error("constraint", f"no version can satisfy {text!r}")
    return text


def read_container(found: Field) -> dict[str, dict[str, str]]:
    """Images by architecture and device."""
    container: dict[str, dict[str, str]] = {}
    for architecture, devices in found.entries().items():
        if devices.is_null:
            continue
        if not devices.is_mapping:
            devices.error("wrong_type", f"expected images by device, found {devices.describe()}", "write {cpu: IMAGE}")
            continue
        container[architecture] = {}
        for device, image in devices.entries().items():
            text = None if image.is_null else image.text()
            if text is not None:
                _check_device(device, text, image)
                container[architecture][device] = text
    return container


def read_requirements(found: Field) -> tuple[str, ...]:
    """PEP 508 requirements, as written."""
    # costs 10 ms, and few manifests have requirements
    from packaging.requirements import InvalidRequirement, Requirement

    kept = []
    for item in found.items() if not found.is_scalar else [found]:
        text = item.text()
        if text is None:
            continue
        try:
            Requirement(text)
            kept.append(text)
        except InvalidRequirement as error:
            message = str(error).splitlines()[0]
            item.error("requirement", f"{item.describe()}: {message}", "write a PEP 508 requirement: numpy>=1.26,<3")
    return tuple(kept)


def _read_version(section: Section) -> str:
    found = section.need("version")
    text = found.text() if found is not None else None
    if found is None or text is None:
        return ""
    try:
        parse_version(text)
    except ConstraintError as error:
        found.error("version", error.message, error.hint)
    return text


def _read_attributes(found: Field) -> dict[str, Any]:
    found.entries()
    return found.value() if found.is_mapping else {}


def _check_device(device: str, image: str, found: Field) -> None:
    other = {"cpu": "gpu", "gpu": "cpu"}.get(device.lower())
    if other is None:
        return
    tag = image.rpartition("/")[2].partition(":")[2] or image
    if _DEVICE_WORDS[other].search(tag) and not _DEVICE_WORDS[device.lower()].search(tag):
        found.warn("image_device", f"the image for the {device} is tagged {other}: {image}", "the two may be swapped")
