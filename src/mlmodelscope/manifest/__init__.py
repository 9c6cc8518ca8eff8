"""Turns manifest text into frozen values, with the position of every problem, and values back into canonical text."""

from mlmodelscope.manifest.canonical import format_manifest, step_facts
from mlmodelscope.manifest.json_schema import schema, write_schemas
from mlmodelscope.manifest.problem import Problem, format_problem
from mlmodelscope.manifest.read import Reading, load_manifest, parse_manifest, read_manifest

__all__ = [
    "Problem",
    "Reading",
    "format_manifest",
    "format_problem",
    "load_manifest",
    "parse_manifest",
    "read_manifest",
    "schema",
    "step_facts",
    "write_schemas",
]
