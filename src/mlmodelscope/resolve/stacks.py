"""A framework and a range of versions -> what must be installed for it, on which Python: stacks that are known to work.

Old releases state no upper bounds, so that a fresh install of one takes packages it has never met. Each rule below
holds for a range of versions of one framework, newest first, and says what its authors could not know. `preferred` is
the version we test: it is taken whenever the range allows it, so that a manifest means the same stack next year.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlmodelscope.core.errors import UnsatisfiableError
from mlmodelscope.core.stack import StackNeed
from mlmodelscope.core.versions import VersionConstraint, VersionRange, both, parse_constraint

__all__ = ["RULES", "StackRule", "need_of"]

_GB = 1_000_000_000
_MODERN = ("3.11", "3.12", "3.10", "3.13")


@dataclass(frozen=True, slots=True)
class StackRule:
    """For `versions` of a framework: the distribution that holds it, the Pythons that will do, and what else it needs.

    `requirements` are installed as well, `bounds` only hold back what comes along. `preferred` is the version we test.
    """

    versions: str
    distribution: str
    python: tuple[str, ...] = _MODERN
    preferred: str | None = None
    requirements: tuple[str, ...] = ("numpy",)
    bounds: tuple[str, ...] = ()
    as_of: str | None = None
    size_bytes: int | None = None
    libraries: tuple[str, ...] = ()


RULES: Mapping[str, Sequence[StackRule]] = {
    "caffe": [
        StackRule(
            ">=1.0 <1.1",
            "kendryte-caffe",
            ("3.9", "3.8", "3.7"),
            "1.0.0.20210829",
            ("numpy<1.24", "protobuf==3.20.3"),
            size_bytes=264_000_000,
        ),
    ],
    "caffe2": [
        StackRule(
            ">=1.0 <1.5",
            "torch",
            ("3.7",),
            "1.4.0",
            ("future", "six", "protobuf<3.21", "numpy<1.22"),
            size_bytes=1_400_000_000,
        ),
    ],
    "cntk": [
        StackRule(
            ">=2.7 <2.8",
            "cntk",
            ("3.6",),
            "2.7.post2",
            ("numpy==1.19.5", "scipy==1.5.4", "pip"),
            size_bytes=436_000_000,
            libraries=("libmpi.so.40", "libmpi_cxx.so.40"),
        ),
    ],
    "jax": [
        StackRule(
            ">=0.4.30",
            "jax",
            preferred="0.10.2",
            requirements=("jaxlib", "numpy", "flatbuffers"),
            size_bytes=545_000_000,
        )
    ],
    "lightgbm": [StackRule(">=4", "lightgbm", preferred="4.7.0", size_bytes=200_000_000)],
    "mxnet": [
        StackRule(">=1.9 <2", "mxnet", ("3.8", "3.9", "3.10", "3.11"), "1.9.1", ("numpy<1.24",), size_bytes=275_000_000)
    ],
    "ncnn": [StackRule(">=1.0", "ncnn", preferred="1.0.20261020", size_bytes=105_000_000)],
    "onnxruntime": [
        StackRule(">=1.20", "onnxruntime", preferred="1.31.1", size_bytes=143_000_000),
        StackRule(
            ">=1.14 <1.20",
            "onnxruntime",
            ("3.11", "3.10", "3.9", "3.8"),
            "1.17.3",
            ("numpy<2",),
            size_bytes=120_000_000,
        ),
        StackRule(
            ">=1.6 <1.14", "onnxruntime", ("3.7", "3.8", "3.9", "3.6"), "1.10.0", ("numpy<1.24", "protobuf<3.21")
        ),
    ],
    "opencv": [
        StackRule(">=4.5 <5", "opencv-python-headless", preferred="4.14.0.94", size_bytes=234_000_000),
    ],
    "openvino": [StackRule(">=2024", "openvino", preferred="2026.4.1", size_bytes=252_000_000)],
    "paddle": [
        StackRule(
            ">=3", "paddlepaddle", preferred="3.3.1", requirements=("numpy", "setuptools"), size_bytes=842_000_000
        )
    ],
    "pytorch": [StackRule(">=2", "torch", ("3.11",), "2.13.0", size_bytes=868_000_000)],
    "tensorflow": [
        StackRule(">=2.16", "tensorflow-cpu", ("3.11", "3.12", "3.10"), "2.21.0", size_bytes=1_500_000_000),
        StackRule(
            ">=1.15 <2", "tensorflow", ("3.7", "3.6"), "1.15.5", ("numpy<1.19", "protobuf<3.21"), size_bytes=600_000_000
        ),
    ],
    "tensorrt": [StackRule(">=10", "tensorrt_cu12", size_bytes=4 * _GB)],
    "tflite": [
        StackRule(">=2.1 <2.12 || >=2.15", "ai-edge-litert", preferred="2.3.0", size_bytes=137_000_000),
        StackRule(">=2.12 <2.15", "tflite-runtime", ("3.11", "3.10", "3.9"), "2.14.0", ("numpy<2",)),
    ],
    "xgboost": [StackRule(">=2", "xgboost-cpu", preferred="3.2.0", requirements=("numpy", "scipy"))],
}


def need_of(framework: str, constraint: VersionConstraint, requirements: Sequence[str] = ()) -> StackNeed:
    """What to install for the newest rule that the constraint allows; `requirements` are the manifest's own.

    UnsatisfiableError: no rule is known for the framework, or none for these versions.
    """
    rules = RULES.get(framework)
    if not rules:
        raise UnsatisfiableError(
            f"no software stack is known for {framework}",
            hint="install it beside mlmodelscope, and use --environment local",
            framework=framework,
        )
    for rule in rules:
        met = both(parse_constraint(rule.versions), constraint)
        if not met.is_empty:
            return _need(framework, rule, met, requirements)
    known = " or ".join(rule.versions for rule in rules)
    raise UnsatisfiableError(
        f"no software stack is known for {framework} {constraint}",
        hint=f"versions with one: {known}",
        framework=framework,
        needed=str(constraint),
    )


def _need(framework: str, rule: StackRule, met: VersionConstraint, requirements: Sequence[str]) -> StackNeed:
    pinned = rule.preferred is not None and met.matches(rule.preferred)
    wanted = f"=={rule.preferred}" if pinned else _specifier(met.ranges[-1])
    return StackNeed(
        framework=framework,
        distribution=rule.distribution,
        python=rule.python,
        requirements=(f"{rule.distribution}{wanted}", *rule.requirements, *requirements),
        bounds=rule.bounds,
        as_of=rule.as_of,
        size_bytes=rule.size_bytes,
        libraries=rule.libraries,
    )


def _specifier(one: VersionRange) -> str:
    """The range in pip's words."""
    if one.low is not None and one.low == one.high:
        return f"=={one.low}"
    low = "" if one.low is None else (">=" if one.low_included else ">") + one.low
    high = "" if one.high is None else ("<=" if one.high_included else "<") + one.high
    return ",".join(filter(None, (low, high)))
