"""The environment of a process -> the variables that a record may keep: an allow-list, because the rest is private."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

__all__ = ["RECORDED_VARIABLES", "recorded_variables"]

# Only what is known to change a result: threads, memory allocation, kernels chosen by a library, devices, text rules.
# Names, or patterns ending in `*`. docs/concepts/records.md lists them and a test compares.
RECORDED_VARIABLES: tuple[str, ...] = (
    "BLIS_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "DNNL_*",
    "GLIBC_TUNABLES",
    "GOMP_*",
    "KMP_*",
    "LANG",
    "LC_ALL",
    "LD_PRELOAD",
    "MALLOC_*",
    "MKL_*",
    "NUMEXPR_NUM_THREADS",
    "OMP_*",
    "ONEDNN_*",
    "OPENBLAS_*",
    "OPENCV_FOR_THREADS_NUM",
    "ORT_*",
    "PYTHONHASHSEED",
    "PYTHONMALLOC",
    "PYTHONOPTIMIZE",
    "TF_*",
    "TZ",
    "XNNPACK_*",
)
# A family admitted by pattern may still have a member that carries a secret; Terraform shares TF_ with TensorFlow and
# passes passwords in TF_VAR_*.
_REFUSED = (
    *("*TOKEN*", "*SECRET*", "*PASSW*", "*CREDENTIAL*", "*_KEY", "*_URL"),
    *("TF_VAR_*", "TF_CLI_*", "TF_CLOUD_*", "TF_HTTP_*", "TF_LOG*", "TF_WORKSPACE"),
)


def recorded_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of `environment` that the allow-list names, sorted by name."""
    return {name: environment[name] for name in sorted(environment) if _is_recorded(name)}


def _is_recorded(name: str) -> bool:
    if any(fnmatchcase(name.upper(), pattern) for pattern in _REFUSED):
        return False
    return any(fnmatchcase(name, pattern) for pattern in RECORDED_VARIABLES)
