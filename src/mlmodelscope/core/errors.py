"""The one tree of errors: every failure a person can cause or meet, with a stable code, fields and a hint.

    MLModelScopeError
    |-- UserError                 what was asked cannot be right            exit 2
    |   |-- UsageError            usage               options that contradict each other
    |   |-- ManifestError         manifest_invalid    a manifest with one or more problems
    |   |-- UnknownNameError      unknown_name        a model, data set, framework or record nobody has heard of
    |   |-- ConstraintError       constraint_invalid  a version or system constraint that cannot be read
    |   |-- UnsatisfiableError    unsatisfiable       nothing here meets the constraints
    |   |-- InputError            input_invalid       an input file that cannot be read or decoded
    |   |-- SampleError           sample_invalid      one sample of a data set that cannot be read or decoded
    |   |-- StepError             step_failed         a built-in step refuses the data it was given
    |   |-- FunctionError         function_failed     a manifest's own Python function failed
    |   |-- BatchError            batch_unsupported   the model's batch dimension is fixed to another size
    |   |-- ShapeError            shape_mismatch      a tensor does not fit the model's input
    |   `-- StatisticError        unsupported_percentile  too few samples for the statistic asked for
    |-- HostError                 this machine could not do its part        exit 3
    |   |-- DownloadError         download_failed     no location of an asset could be fetched
    |   |-- DigestError           digest_mismatch     a file is not what its checksum says
    |   |-- ArchiveError          archive_unsafe      an archive that escapes, explodes or cannot be read
    |   |-- StorageError          storage_failed      the disk is full, or a file or folder cannot be read or written
    |   |-- EnvironmentMissingError  environment_missing  a package or program that is needed is not installed
    |   |-- TimeLimitError        time_limit          a sample or a run took longer than allowed
    |   |-- MemoryLimitError      memory_limit        the worker grew beyond its memory limit
    |   |-- ProcessLimitError     process_limit       an untrusted worker started too many processes and threads
    |   |-- SandboxError          sandbox_unavailable  untrusted code cannot be run here, because no sandbox can be had
    |   `-- WorkerCrashError      worker_crashed      the worker died (signal, exit, out of memory)
    `-- PluginError               a plug-in broke its contract or failed    exit 4
        |-- PredictorError        predictor_failed    a framework refused the model or the call
        |-- ModelFormatError      model_format        the file is not a model of this framework
        |-- ConvertError          convert_failed      a converter could not make the runnable file
        |-- StoreError            store_failed        the evaluation database cannot be used
        `-- RegistryError         registry_invalid    two plug-ins of one name, or one that cannot be loaded

A bug has no class here: it propagates. `Interrupted` (exit 130) is not an error of anybody's: the user stopped us.
The worker sends an error as `to_fields()`; the parent makes it an object again with `from_fields()`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

__all__ = [
    "ArchiveError",
    "BatchError",
    "ConstraintError",
    "ConvertError",
    "DigestError",
    "DownloadError",
    "EnvironmentMissingError",
    "FunctionError",
    "HostError",
    "InputError",
    "Interrupted",
    "MLModelScopeError",
    "ManifestError",
    "MemoryLimitError",
    "ModelFormatError",
    "PluginError",
    "PredictorError",
    "ProcessLimitError",
    "RegistryError",
    "SampleError",
    "SandboxError",
    "ShapeError",
    "StatisticError",
    "StepError",
    "StorageError",
    "StoreError",
    "TimeLimitError",
    "UnknownNameError",
    "UnsatisfiableError",
    "UsageError",
    "UserError",
    "WorkerCrashError",
    "error_classes",
    "from_fields",
]


class MLModelScopeError(Exception):
    """An expected failure. `message` says what happened, `hint` what to do, `fields` the facts as plain JSON values."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 4

    def __init__(self, message: str, *, hint: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields: dict[str, Any] = fields

    def __str__(self) -> str:
        return self.message

    def to_fields(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "hint": self.hint, "fields": self.fields}


class UserError(MLModelScopeError):
    code = "user_error"
    exit_code = 2


class HostError(MLModelScopeError):
    code = "host_error"
    exit_code = 3


class PluginError(MLModelScopeError):
    code = "plugin_error"
    exit_code = 4


class UsageError(UserError):
    code = "usage"


class ManifestError(UserError):
    """`fields["problems"]`: a list of {file, line, column, path, level, code, message, hint}, in file order."""

    code = "manifest_invalid"


class UnknownNameError(UserError):
    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str | None = None) -> None:
        """`kind` is what was looked for ("model"), `known` the names that exist."""
        names = sorted(known)
        near = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=3, cutoff=0.5)
        near_names = [n for n in names if n.lower() in near]
        if hint is None:
            if near_names:
                hint = f"did you mean {' or '.join(near_names)}?"
            elif names:
                shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
                hint = f"known {kind}s: {shown}"
        super().__init__(f"there is no {kind} named {name!r}", hint=hint, kind=kind, name=name, near=near_names)


class ConstraintError(UserError):
    code = "constraint_invalid"


class UnsatisfiableError(UserError):
    code = "unsatisfiable"


class InputError(UserError):
    code = "input_invalid"


class SampleError(UserError):
    code = "sample_invalid"


class StepError(UserError):
    code = "step_failed"


class FunctionError(UserError):
    code = "function_failed"


class BatchError(UserError):
    code = "batch_unsupported"


class ShapeError(UserError):
    code = "shape_mismatch"


class StatisticError(UserError):
    code = "unsupported_percentile"


class DownloadError(HostError):
    code = "download_failed"


class DigestError(HostError):
    code = "digest_mismatch"


class ArchiveError(HostError):
    code = "archive_unsafe"


class StorageError(HostError):
    code = "storage_failed"


class EnvironmentMissingError(HostError):
    code = "environment_missing"


class TimeLimitError(HostError):
    code = "time_limit"


class MemoryLimitError(HostError):
    code = "memory_limit"


class ProcessLimitError(HostError):
    code = "process_limit"


class SandboxError(HostError):
    code = "sandbox_unavailable"


class WorkerCrashError(HostError):
    code = "worker_crashed"


class PredictorError(PluginError):
    code = "predictor_failed"


class ModelFormatError(PluginError):
    code = "model_format"


class ConvertError(PluginError):
    code = "convert_failed"


class StoreError(PluginError):
    code = "store_failed"


class RegistryError(PluginError):
    code = "registry_invalid"


class Interrupted(Exception):  # noqa: N818 - the user's wish, not a failure
    """The user stopped the run (Ctrl-C or SIGTERM)."""

    exit_code: ClassVar[int] = 130


def error_classes() -> dict[str, type[MLModelScopeError]]:
    """Every class of the tree by its code."""
    found: dict[str, type[MLModelScopeError]] = {}
    waiting: list[type[MLModelScopeError]] = [MLModelScopeError]
    while waiting:
        cls = waiting.pop()
        found[cls.code] = cls
        waiting.extend(cls.__subclasses__())
    return found


def from_fields(values: Mapping[str, Any]) -> MLModelScopeError:
    """The error that `to_fields` described, of its own class again; an unknown code becomes a PluginError."""
    cls = error_classes().get(str(values.get("code")), PluginError)
    error = cls.__new__(cls)
    MLModelScopeError.__init__(error, str(values.get("message", "")), hint=values.get("hint"))
    error.fields = dict(values.get("fields") or {})
    return error
