"""Nodes and variables tell what TensorFlow's kernels compute in, and whose kernels they are."""

from __future__ import annotations

from types import SimpleNamespace as Record

import pytest

from mlmodelscope.predictors.tensorflowprecision import kernel_library, precision_of, reduced_by


def node(op: str, kind: int | None = 1) -> Record:
    return Record(op=op, attr={} if kind is None else {"T": Record(type=kind)})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("MatMul"), node("Relu")], "float32"),
        # a model in mixed precision: the sums are float32, the products are not
        ([node("Relu"), node("AddV2"), node("Softmax"), node("Conv2D", 14)], "bfloat16"),
        ([node("_FusedConv2D", 19), node("BatchMatMulV2", 19), node("MatMul", 1)], "float16"),
        ([node("DepthwiseConv2dNative", 2)], "float64"),
        ([node("Conv2D"), node("QuantizedConv2DWithBias", 11)], "int8 quantised"),
        ([node("AddV2", 3), node("Mul", 1)], "float32"),
        ([node("Placeholder", None), node("AddV2", 3)], "unknown"),
    ],
)
def test_precision_is_that_of_the_products(nodes, expected):
    assert precision_of(nodes) == expected


def test_a_variable_that_shortens_float32_is_named():
    assert reduced_by({}) is None
    assert reduced_by({"TF_SET_ONEDNN_FPMATH_MODE": "", "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT"}) is None
    assert reduced_by({"TF_SET_ONEDNN_FPMATH_MODE": "BF16"}) == "TF_SET_ONEDNN_FPMATH_MODE"
    assert reduced_by({"ONEDNN_DEFAULT_FPMATH_MODE": "any"}) == "ONEDNN_DEFAULT_FPMATH_MODE"


def test_the_library_has_the_version_it_was_built_with(tmp_path):
    assert kernel_library(False, str(tmp_path)) == "Eigen"
    assert kernel_library(True, str(tmp_path)) == "oneDNN"
    header = tmp_path / "external" / "onednn" / "include" / "oneapi" / "dnnl" / "dnnl_version.h"
    header.parent.mkdir(parents=True)
    lines = [f"#define DNNL_VERSION_{part} {number}" for part, number in (("MAJOR", 3), ("MINOR", 7), ("PATCH", 2))]
    header.write_text("\n".join(lines))
    assert kernel_library(True, str(tmp_path)) == "oneDNN 3.7.2"
