"""Loads, predicts, unloads and runs the timed inference loop: the portable half of the worker (Python 3.6 syntax).

It stands beside a framework in any environment, so it imports nothing but the standard library and other files of
the portable layer. In the `local` environment the worker proper calls these functions in its own process.
"""

import gc
import importlib
from array import array
from typing import Any, Callable, List, Sequence, Tuple

__all__ = ["inference_loop", "open_predictor"]


def open_predictor(entry_point: str) -> Any:
    """An unloaded predictor from "module:attribute"."""
    module_name, _, attribute = entry_point.partition(":")
    return getattr(importlib.import_module(module_name), attribute)()


def inference_loop(
    predict: Callable[[List[Any]], Any],
    queries: Sequence[List[Any]],
    min_duration_ns: int,
    min_queries: int,
    clock: Callable[[], int],
    progress: Any,
) -> Tuple[Any, Any]:
    """Start and end of every query, in nanoseconds of `clock`.

    Cycles through `queries` (already in their seeded order) one after the other until both minima are met. Timed:
    `predict` with its copies in and out. Outside: choosing the next query, storing two numbers, one write to
    `progress` (shared memory that the parent reads, so that no message is sent while the clock runs). The garbage
    collector is off meanwhile: its pauses are ours, not the framework's.
    """
    begins = array("q")
    ends = array("q")
    add_begin = begins.append
    add_end = ends.append
    count = 0
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        deadline = clock() + min_duration_ns
        while True:
            for inputs in queries:
                begin = clock()
                predict(inputs)
                end = clock()
                add_begin(begin)
                add_end(end)
                count += 1
                progress[0] = count
                if end >= deadline and count >= min_queries:
                    return begins, ends
    finally:
        if was_enabled:
            gc.enable()
