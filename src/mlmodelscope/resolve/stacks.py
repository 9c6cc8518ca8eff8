"""A framework and a range of versions -> what must be installed for it, on which Python: stacks that are known to work.

Old releases state no upper bounds, so that a fresh install of one takes packages it has never met. Each rule below
holds for a range of versions of one framework, newest first, and says what its authors could not know. `preferred` is
the version we test: it is taken whenever the range allows it. A stack that nobody develops any more is held where we
tested it, by a date and, because not every index knows dates, by the newest version of each package that comes along:
there a manifest means the same packages next year. What comes along with a current framework moves on with its index.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlmodelscope.core.errors import UnsatisfiableError
from mlmodelscope.core.stack import StackNeed
from mlmodelscope.core.versions import VersionConstraint, VersionRange, both, parse_constraint

__all__ = ["RULES", "StackRule", "is_tested", "need_of"]

_GB = 1_000_000_000
_MODERN = ("3.11", "3.12", "3.10", "3.13")
# the day that old stacks were last tested on: nothing published later belongs to them
_TESTED_ON = "2026-11-15"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def _at_most(text: str) -> tuple[str, ...]:
    """`name version` pairs -> what holds each of them back."""
    words = text.split()
    return tuple(f"{name}<={version}" for name, version in zip(words[::2], words[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class StackRule:
    """For `versions` of a framework: the distribution that holds it, the Pythons that will do, and what else it needs.

    `requirements` are installed as well, `bounds` only hold back what comes along. `preferred` is the version we test,
    `size_bytes` what it takes on disk, alone (without one: what any version does).
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
            _at_most(
                "imageio 2.37.2 lazy-loader 0.6 networkx 3.2.1 numpy 1.23.5 packaging 26.3 pillow 11.3.0 "
                "scikit-image 0.24.0 scipy 1.13.1 six 1.17.0 tifffile 2024.8.30"
            ),
            _TESTED_ON,
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
            _at_most("future 1.0.0 numpy 1.21.6 protobuf 3.20.3 six 1.17.0"),
            _TESTED_ON,
            size_bytes=1_400_000_000,
        ),
    ],
    "cntk": [
        StackRule(
            ">=2.7 <2.8",
            "cntk",
            ("3.6",),
            "2.7.post2",
            # its Python is too old for uv, and its pip for dates: the versions alone hold it
            ("numpy==1.19.5", "scipy==1.5.4", "pip"),
            _at_most("pip 21.3.1"),
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
        StackRule(
            ">=1.9 <2",
            "mxnet",
            ("3.8", "3.9", "3.10", "3.11"),
            "1.9.1",
            ("numpy<1.24",),
            _at_most(
                "certifi 2026.10.18 charset-normalizer 3.5.2 graphviz 0.8.4 idna 3.15 numpy 1.23.5 requests 2.32.4 "
                "urllib3 2.2.3"
            ),
            _TESTED_ON,
            size_bytes=275_000_000,
        )
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
            _at_most(
                "coloredlogs 15.0.1 flatbuffers 25.12.19 humanfriendly 10.0 mpmath 1.3.0 numpy 1.26.4 packaging 26.3 "
                "protobuf 7.36.2 sympy 1.14.0"
            ),
            _TESTED_ON,
            size_bytes=120_000_000,
        ),
        StackRule(
            ">=1.6 <1.14",
            "onnxruntime",
            ("3.7", "3.8", "3.9", "3.6"),
            "1.10.0",
            ("numpy<1.24", "protobuf<3.21"),
            _at_most("flatbuffers 25.12.19 numpy 1.21.6 protobuf 3.20.3"),
            _TESTED_ON,
        ),
    ],
    "opencv": [
        StackRule(">=4.10.0.84 <5", "opencv-python-headless", preferred="4.14.0.94", size_bytes=234_000_000),
        # built for numpy 1, and nothing in them says so
        StackRule(">=4.5 <4.10.0.84", "opencv-python-headless", ("3.11", "3.10", "3.9"), requirements=("numpy<2",)),
    ],
    "openvino": [StackRule(">=2024", "openvino", preferred="2026.4.1", size_bytes=252_000_000)],
    "paddle": [
        StackRule(
            ">=3", "paddlepaddle", preferred="3.3.1", requirements=("numpy", "setuptools"), size_bytes=842_000_000
        )
    ],
    "pytorch": [
        StackRule(">=2.3", "torch", ("3.11",), "2.13.0", size_bytes=868_000_000),
        # built for numpy 1, and nothing in them says so
        StackRule(">=2 <2.3", "torch", ("3.11", "3.10", "3.9"), requirements=("numpy<2",)),
    ],
    "tensorflow": [
        StackRule(">=2.16", "tensorflow-cpu", ("3.11", "3.12", "3.10"), "2.21.0", size_bytes=1_500_000_000),
        StackRule(
            ">=1.15 <2",
            "tensorflow",
            ("3.7", "3.6"),
            "1.15.5",
            ("numpy<1.19", "protobuf<3.21"),
            _at_most(
                "absl-py 2.1.0 astor 0.8.1 gast 0.2.2 google-pasta 0.2.0 grpcio 1.62.3 h5py 2.10.0 "
                "importlib-metadata 6.7.0 keras-applications 1.0.8 keras-preprocessing 1.1.2 markdown 3.4.4 "
                "markupsafe 2.1.5 numpy 1.18.5 opt-einsum 3.3.0 protobuf 3.20.3 setuptools 68.0.0 six 1.17.0 "
                "tensorboard 1.15.0 tensorflow-estimator 1.15.1 termcolor 2.3.0 typing-extensions 4.7.1 "
                "werkzeug 2.2.3 wheel 0.42.0 wrapt 1.16.0 zipp 3.15.0"
            ),
            _TESTED_ON,
            size_bytes=600_000_000,
        ),
    ],
    "tensorrt": [StackRule(">=10", "tensorrt_cu12", size_bytes=4 * _GB)],
    "tflite": [
        StackRule(">=2.1 <2.12 || >=2.15", "ai-edge-litert", preferred="2.3.0", size_bytes=137_000_000),
        StackRule(
            ">=2.12 <2.15",
            "tflite-runtime",
            ("3.11", "3.10", "3.9"),
            "2.14.0",
            ("numpy<2",),
            _at_most("numpy 1.26.4"),
            _TESTED_ON,
        ),
    ],
    "xgboost": [StackRule(">=2", "xgboost-cpu", preferred="3.2.0", requirements=("numpy", "scipy"))],
}


def need_of(framework: str, constraint: VersionConstraint, requirements: Sequence[str] = ()) -> StackNeed:
    """What to install for the newest rule that the constraint allows; `requirements` are the manifest's own.

    A package that the manifest requires by name is held back by nothing of ours but the date.
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


def is_tested(need: StackNeed) -> bool:
    """Whether it is, in every word, what we install for a version that we test: nobody else chose anything in it."""
    tested = (rule for rule in RULES.get(need.framework, ()) if rule.preferred is not None)
    return any(need == _need(need.framework, rule, parse_constraint(f"=={rule.preferred}"), ()) for rule in tested)


def _need(framework: str, rule: StackRule, met: VersionConstraint, requirements: Sequence[str]) -> StackNeed:
    pinned = rule.preferred is not None and met.matches(rule.preferred)
    wanted = f"=={rule.preferred}" if pinned else _specifier(met.ranges[-1])
    named = {_name(text) for text in requirements}
    has_size = rule.preferred is None or (pinned and not requirements)
    return StackNeed(
        framework=framework,
        distribution=rule.distribution,
        python=rule.python,
        requirements=(f"{rule.distribution}{wanted}", *rule.requirements, *requirements),
        bounds=tuple(bound for bound in rule.bounds if _name(bound) not in named),
        as_of=rule.as_of,
        size_bytes=rule.size_bytes if has_size else None,
        libraries=rule.libraries,
    )


def _name(requirement: str) -> str:
    """The package's name as indexes compare names."""
    found = _NAME.match(requirement.strip())
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def _specifier(one: VersionRange) -> str:
    """The range in pip's words."""
    if one.low is not None and one.low == one.high:
        return f"=={one.low}"
    low = "" if one.low is None else (">=" if one.low_included else ">") + one.low
    high = "" if one.high is None else ("<=" if one.high_included else "<") + one.high
    return ",".join(filter(None, (low, high)))
