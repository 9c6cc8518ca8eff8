"""Turns the types of manifests into JSON Schema of the canonical form, for editors and other programs.

The schema is stricter than the reader: it knows one spelling of each field and refuses unknown keys, of which the
reader only warns. The files in `schemas/` are written by `write_schemas`; a test fails when they are out of date.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from mlmodelscope.core.asset import Asset, Checksum
from mlmodelscope.core.manifest import (
    DatasetManifest,
    FrameworkManifest,
    ModelInput,
    ModelManifest,
    ModelOutput,
    PythonFunction,
)
from mlmodelscope.core.steps import INPUT_STEPS, OUTPUT_STEPS, STEPS
from mlmodelscope.manifest.assets import ASSET_KEYS
from mlmodelscope.manifest.dataset import LAYOUTS

__all__ = ["KINDS", "schema", "write_schemas"]

KINDS: dict[str, type[BaseModel]] = {
    "model": ModelManifest,
    "framework": FrameworkManifest,
    "dataset": DatasetManifest,
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string"}
_RENAMED = {"is_hidden": "hidden"}
Schema = dict[str, Any]


def schema(kind: str) -> Schema:
    """The schema of `kind` ("model", "framework" or "dataset")."""
    cls = KINDS[kind]
    found = _object(cls)
    found["properties"]["kind"] = {"const": kind}
    if kind != "model":
        found["required"] = ["kind", *found["required"]]
    definitions = {"location": _locations(), "checksum": _checksum(), "convert": _convert(), "asset": _asset()}
    return (
        {"$schema": _DIALECT, "title": f"{kind} manifest", "description": _sentence(cls)}
        | found
        | {"$defs": definitions}
    )


def write_schemas(folder: Path) -> list[Path]:
    """Writes one file per kind and returns their paths."""
    written = []
    for kind in KINDS:
        path = folder / f"{kind}.schema.json"
        path.write_text(json.dumps(schema(kind), indent=2) + "\n", encoding="utf-8")
        written.append(path)
    return written


def _object(cls: type[BaseModel], without: tuple[str, ...] = ()) -> Schema:
    properties: Schema = {}
    required: list[str] = []
    for name, info in cls.model_fields.items():
        if name in without:
            continue
        if name in ASSET_KEYS and cls not in (DatasetManifest, *LAYOUTS.values()):
            keys = ASSET_KEYS[name]
            properties[keys.location] = {"$ref": "#/$defs/location"}
            properties[keys.checksum] = {"$ref": "#/$defs/checksum"}
            properties[keys.convert] = {"$ref": "#/$defs/convert"}
            written = keys.location
        else:
            written = _RENAMED.get(name, name)
            properties[written] = _steps(cls) if name == "steps" else _field(cls, name)
        if info.is_required():
            required.append(written)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _field(cls: type[BaseModel], name: str) -> Schema:
    info = cls.model_fields[name]
    annotation: Any = info.annotation
    if name == "version":
        # the reader keeps the text of a number, so 1.0 needs no quotes
        return {"type": ["string", "number"]}
    if get_origin(annotation) in (Union, UnionType):
        annotation = Union[tuple(part for part in get_args(annotation) if part is not NoneType)]  # noqa: UP007 - the parts are only known here
    if info.metadata:
        annotation = Annotated[(annotation, *info.metadata)]
    return _type(annotation)


def _type(annotation: Any) -> Schema:
    """Our own types as they are written; pydantic knows the rest."""
    if get_origin(annotation) is Annotated and not _mentions_model(annotation):
        return _leaf(annotation)
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if get_origin(bare) in (Union, UnionType) and _mentions_model(bare):
        return {"anyOf": [_type(part) for part in get_args(bare)]}
    if get_origin(bare) is tuple and _mentions_model(bare):
        return {"type": "array", "items": _type(get_args(bare)[0]), "minItems": 1}
    if bare is PythonFunction:
        return {"type": "string", "description": _sentence(PythonFunction)}
    if bare is Asset:
        return {"$ref": "#/$defs/asset"}
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        return _model(bare)
    return _leaf(annotation)


def _model(cls: type[BaseModel]) -> Schema:
    found = _object(cls) | {"description": _sentence(cls)}
    if cls in LAYOUTS.values():
        found["properties"]["type"] = {"const": cls.model_fields["type"].default}
        found["required"] = ["type", *found["required"]]
    return found


def _steps(cls: type[BaseModel]) -> Schema:
    names = INPUT_STEPS if cls is ModelInput else OUTPUT_STEPS
    assert cls in (ModelInput, ModelOutput)
    return {"type": "array", "items": {"anyOf": [_step(name) for name in names]}}


def _step(name: str) -> Schema:
    cls = STEPS[name]
    parameters = _object(cls, without=("step",))
    only = next(iter(parameters["properties"])) if len(parameters["properties"]) == 1 else None
    body = parameters["properties"][only] if only else parameters
    return {
        "type": "object",
        "description": _sentence(cls),
        "properties": {name: body},
        "required": [name],
        "additionalProperties": False,
    }


def _mentions_model(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return True
    return any(_mentions_model(part) for part in get_args(annotation))


def _leaf(annotation: Any) -> Schema:
    return TypeAdapter(annotation).json_schema()


def _locations() -> Schema:
    several = {"type": "array", "items": _TEXT, "minItems": 1}
    return {"description": "A location, or alternatives that are tried in order.", "anyOf": [_TEXT, several]}


def _checksum() -> Schema:
    found = _object(Checksum)
    return found | {"description": "Digests of the original file.", "minProperties": 1}


def _convert() -> Schema:
    options = {"type": "object", "properties": {"name": _TEXT}, "required": ["name"], "additionalProperties": _TEXT}
    return {"description": "The converter's name, alone or with its options.", "anyOf": [_TEXT, options]}


def _asset() -> Schema:
    names = {name: {"$ref": f"#/$defs/{name}"} for name in ("location", "checksum", "convert")}
    whole = {"type": "object", "properties": names, "required": ["location"], "additionalProperties": False}
    return {"description": _sentence(Asset), "anyOf": [{"$ref": "#/$defs/location"}, whole]}


def _sentence(cls: type[BaseModel]) -> str:
    return " ".join((cls.__doc__ or "").split())
