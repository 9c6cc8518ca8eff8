"""MLModelScope: evaluate and benchmark machine-learning models repeatably, fairly and at scale.

import mlmodelscope as ms
record = ms.evaluate("ResNet50", dataset="imagenet-photos")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlmodelscope.core.release import VERSION

if TYPE_CHECKING:
    from mlmodelscope.core.errors import MLModelScopeError
    from mlmodelscope.core.record import Record
    from mlmodelscope.core.request import Batched, EvaluationRequest, Limits, Offline, SingleStream
    from mlmodelscope.core.store import HistoryQuery
    from mlmodelscope.library import Workspace, compare, evaluate, frameworks, get, history, predict, reproduce

__version__ = VERSION

__all__ = [
    "Batched",
    "EvaluationRequest",
    "HistoryQuery",
    "Limits",
    "MLModelScopeError",
    "Offline",
    "Record",
    "SingleStream",
    "Workspace",
    "__version__",
    "compare",
    "evaluate",
    "frameworks",
    "get",
    "history",
    "predict",
    "reproduce",
]

# loaded when first used: importing the package must stay nearly free
_HOMES = {
    "Batched": "core.request",
    "EvaluationRequest": "core.request",
    "HistoryQuery": "core.store",
    "Limits": "core.request",
    "MLModelScopeError": "core.errors",
    "Offline": "core.request",
    "Record": "core.record",
    "SingleStream": "core.request",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'library')}"), name)


def __dir__() -> list[str]:
    return __all__
