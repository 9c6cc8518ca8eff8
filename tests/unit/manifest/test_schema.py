"""The shipped schemas and the reference page: up to date, and true of canonical manifests."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlmodelscope.core.manifest import ModelInput, ModelOutput, ModelSource
from mlmodelscope.manifest import format_manifest, load_manifest
from mlmodelscope.manifest.canonical import FIELD_ORDER
from mlmodelscope.manifest.json_schema import KINDS, schema, write_schemas
from mlmodelscope.manifest.reference import NOTES, format_reference

FIXTURES = Path(__file__).parent / "fixtures"
ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "src" / "mlmodelscope" / "manifest" / "schemas"
TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "array": list,
    "boolean": bool,
}


def complaints(value: Any, rule: dict[str, Any], root: dict[str, Any], path: str = "") -> list[str]:
    """What is wrong with `value` by the part of JSON Schema that our schemas use; an unknown keyword is an error."""
    known = {"$schema", "$defs", "$ref", "title", "description", "type", "properties", "required", "const", "enum"}
    known |= {
        "additionalProperties",
        "minProperties",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "anyOf",
        "pattern",
    }
    known |= {"exclusiveMinimum", "minimum", "maximum"}
    assert set(rule) <= known, set(rule) - known
    found: list[str] = []
    if "$ref" in rule:
        found += complaints(value, root["$defs"][rule["$ref"].rpartition("/")[2]], root, path)
    if "anyOf" in rule and all(complaints(value, one, root, path) for one in rule["anyOf"]):
        found.append(f"{path}: no alternative fits")
    names = rule.get("type", [])
    expected = tuple(TYPES[name] for name in ([names] if isinstance(names, str) else names))
    is_wrong = bool(expected) and not any(isinstance(value, one) for one in expected)
    if is_wrong or (isinstance(value, bool) and names != "boolean" and expected):
        return [*found, f"{path}: {value!r} is not {names}"]
    if value not in rule.get("enum", [value]) or value != rule.get("const", value):
        found.append(f"{path}: {value!r}")
    if isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        found.append(f"{path}: {value!r} against {rule['pattern']}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        found += number_complaints(value, rule, path)
    if isinstance(value, list):
        found += list_complaints(value, rule, root, path)
    if isinstance(value, dict):
        found += object_complaints(value, rule, root, path)
    return found


def number_complaints(value: float, rule: dict[str, Any], path: str) -> list[str]:
    too_low = value < rule.get("minimum", value) or ("exclusiveMinimum" in rule and value <= rule["exclusiveMinimum"])
    return [f"{path}: {value} out of range"] if too_low or value > rule.get("maximum", value) else []


def list_complaints(value: list[Any], rule: dict[str, Any], root: dict[str, Any], path: str) -> list[str]:
    found = []
    if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
        found.append(f"{path}: {len(value)} items")
    rules = rule.get("prefixItems") or [rule.get("items", {})] * len(value)
    for index, (one, its) in enumerate(zip(value, rules, strict=False)):
        found += complaints(one, its, root, f"{path}[{index}]")
    return found


def object_complaints(value: dict[str, Any], rule: dict[str, Any], root: dict[str, Any], path: str) -> list[str]:
    found = [f"{path}: {name} is missing" for name in rule.get("required", []) if name not in value]
    if len(value) < rule.get("minProperties", 0):
        found.append(f"{path}: too few properties")
    others = rule.get("additionalProperties", True)
    for name, one in value.items():
        its = rule.get("properties", {}).get(name, others)
        if its is False:
            found.append(f"{path}: {name} is unknown")
        elif its is not True:
            found += complaints(one, its, root, f"{path}.{name}")
    return found


def canonical(path: Path) -> dict[str, Any]:
    return yaml.safe_load(format_manifest(load_manifest(path)))


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.yml")), ids=lambda path: path.stem)
def test_canonical_manifests_fit_their_schema(path: Path):
    value = canonical(path)
    rule = schema(value["kind"])
    assert complaints(value, rule, rule) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.pop("name"),
        lambda value: value.update(nmae="x"),
        lambda value: value.update(inputs=[]),
        lambda value: value.update(kind="dataset"),
        lambda value: value["inputs"][0].update(element_type="float31"),
        lambda value: value["inputs"][0]["steps"].append({"crp": {}}),
        lambda value: value["inputs"][0]["steps"].append({"mean": "x"}),
        lambda value: value["inputs"][0]["steps"].append({"resize": {"shorter_side": 0}}),
        lambda value: value["inputs"][0]["steps"].append({"softmax": {}}),
        lambda value: value["source"].update(checksum={"sha256": "x"}),
        lambda value: value.update(preprocess={"name": "fun"}),
    ],
)
def test_the_schema_refuses(change: Any):
    value = canonical(FIXTURES / "design.yml")
    change(value)
    rule = schema("model")
    assert complaints(value, rule, rule) != []


def test_shipped_schemas_are_current(tmp_path: Path):
    for path in write_schemas(tmp_path):
        shipped = (SHIPPED / path.name).read_text()
        assert shipped == path.read_text(), "run mlmodelscope.manifest.json_schema.write_schemas"
        assert json.loads(shipped)["$schema"].endswith("2020-12/schema")
    assert {path.name for path in SHIPPED.iterdir()} == {f"{kind}.schema.json" for kind in KINDS}


def test_the_reference_page_is_current():
    page = (ROOT / "docs" / "reference" / "manifest.md").read_text()
    assert page == format_reference(), "run mlmodelscope.manifest.reference.write_reference"


def test_every_field_is_printed_and_has_a_note():
    for kind, cls in KINDS.items():
        assert set(FIELD_ORDER[kind]) == set(cls.model_fields) - {"kind"}
    fields = [*KINDS.values(), ModelInput, ModelOutput, ModelSource]
    assert {name for cls in fields for name in cls.model_fields} - {"kind"} == set(NOTES)
