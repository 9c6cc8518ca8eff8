"""A predictor and its model files -> a verdict on what only its own process can see (Python 3.6 syntax, numpy only).

The contract suite talks to a framework through the worker's shim, where every array is copied on the way. What a copy
would hide is looked at here, inside the framework's own environment: `python -c ... CASE CHECK` with the folder of the
portable layer on the path. CASE is a JSON file:

    {"entry_point", "open": MODEL, "large": MODEL or null, "large_bytes",
     "samples": an .npz of arrays "<sample>/<input>", "threads": of the process's variables,
     "threads_beside": how many the framework may compute on beside those that it is told, if not 0}

and MODEL what `Predictor.load` takes. The answer is a line of JSON: {"check", "passed", "detail"}.
"""

import gc
import importlib
import json
import os
import sys
import time
import traceback
from typing import Any, Dict, List, Sequence

__all__ = [
    "CHECKS",
    "as_many_threads_as_asked",
    "inputs_are_left_alone",
    "main",
    "one_thread_means_one",
    "results_outlive_later_calls",
    "two_models_live_side_by_side",
    "unloading_frees_the_memory",
]

_CYCLES = 10
_SETTLED = 4
# of one thread's work: a second one that computes would show as up to twice the time that passes
_MOST_SHARE = 1.1
_SECONDS = 0.5
# rows enough for every framework to think a second thread worth while, and the least share of a thread that computes
_ROWS, _TREE_ROWS = 256, 20000
_LEAST_SHARE = 0.1


def results_outlive_later_calls(case: Dict[str, Any]) -> str:
    """Outputs belong to the caller: neither a later call nor `unload` changes them."""
    import numpy as np

    predictor = _loaded(case, "open")
    samples = _samples(case)
    results = [predictor.predict(list(sample)) for sample in samples]
    copies = [[np.array(array) for array in result] for result in results]
    for sample in reversed(samples):
        predictor.predict([array + 1 for array in sample])
    predictor.unload()
    gc.collect()
    for result, copy in zip(results, copies):
        for mine, kept in zip(result, copy):
            assert np.array_equal(mine, kept), "an output changed after it was given out"
    return f"{len(results)} results kept"


def inputs_are_left_alone(case: Dict[str, Any]) -> str:
    """Inputs are read only, and may be memory that cannot be written."""
    import numpy as np

    predictor = _loaded(case, "open")
    sample = [np.array(array) for array in _samples(case)[0]]
    before = [array.copy() for array in sample]
    for array in sample:
        array.flags.writeable = False
    predictor.predict(sample)
    predictor.predict(sample)
    for array, kept in zip(sample, before):
        assert np.array_equal(array, kept), "an input was changed"
    predictor.unload()
    return "unchanged"


def two_models_live_side_by_side(case: Dict[str, Any]) -> str:
    """A second predictor of the same process does not disturb the first."""
    import numpy as np

    first, second = _loaded(case, "open"), _loaded(case, "open")
    samples = _samples(case)
    alone = [np.array(array) for array in first.predict(list(samples[0]))]
    second.predict(list(samples[1]))
    second.unload()
    for mine, kept in zip(first.predict(list(samples[0])), alone):
        assert np.array_equal(mine, kept), "the other model's call changed the answer"
    first.unload()
    return "undisturbed"


def one_thread_means_one(case: Dict[str, Any]) -> str:
    """With threads = 1, this process computes no more than the time that passes: a busy machine cannot hide that."""
    predictor = _loaded(case, "large" if case["large"] else "open", threads=1)
    sample = list(_samples(case)[0])
    for _ in range(3):
        predictor.predict(sample)
    begin, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < _SECONDS:
        predictor.predict(sample)
    share = (time.process_time() - used) / (time.perf_counter() - begin)
    predictor.unload()
    assert share <= _MOST_SHARE, f"{share:.2f} processors were busy"
    return f"{share:.2f} processors busy"


def as_many_threads_as_asked(case: Dict[str, Any]) -> str:
    """With a large batch, as many threads of this process compute as were asked for; the system keeps their times."""
    import numpy as np

    threads = case["threads"]
    which, rows = ("large", _ROWS) if case["large"] else ("open", _TREE_ROWS)
    predictor = _loaded(case, which, threads=threads)
    sample = [np.repeat(array, rows, axis=0) for array in _samples(case)[0]]
    for _ in range(3):
        predictor.predict(sample)
    begin, before = time.perf_counter(), _thread_ticks()
    while time.perf_counter() - begin < _SECONDS:
        predictor.predict(sample)
    after = _thread_ticks()
    predictor.unload()
    used = sorted((after[name] - before.get(name, 0) for name in after), reverse=True)
    busy = [ticks for ticks in used if ticks >= _LEAST_SHARE * sum(used)]
    most = threads + case.get("threads_beside", 0)
    assert threads <= len(busy) <= most, f"{len(busy)} threads computed, {threads} were asked for (ticks: {used[:8]})"
    return f"{len(busy)} threads computed (ticks: {busy})"


def unloading_frees_the_memory(case: Dict[str, Any]) -> str:
    """Loaded and unloaded again and again, a model leaves less than half of itself behind, all in all.

    The process must be started with MALLOC_MMAP_THRESHOLD_ set: glibc otherwise keeps large blocks for itself, now more
    and now less, which says nothing of the framework.
    """
    if not case["large"]:
        return "there is no large model of this kind"
    sample = list(_samples(case)[0])
    held: List[int] = []
    # all of them live on: it is `unload` that must free, not the end of the object
    unloaded = []
    for _ in range(_CYCLES):
        predictor = _loaded(case, "large")
        predictor.predict(sample)
        predictor.unload()
        unloaded.append(predictor)
        gc.collect()
        held.append(_resident_bytes())
    # the first ones fill caches that the rest reuse
    grown = held[-1] - held[_SETTLED - 1]
    size = case["large_bytes"]
    rounds = _CYCLES - _SETTLED
    assert grown < size / 2, f"{rounds} rounds kept {grown / 1e6:.1f} MB of a model of {size / 1e6:.1f} MB"
    return f"{grown / 1e6:.1f} MB more after {rounds} rounds"


CHECKS = {
    check.__name__: check
    for check in (
        as_many_threads_as_asked,
        inputs_are_left_alone,
        one_thread_means_one,
        results_outlive_later_calls,
        two_models_live_side_by_side,
        unloading_frees_the_memory,
    )
}


def _loaded(case: Dict[str, Any], which: str, **changes: Any) -> Any:
    module_name, _, attribute = case["entry_point"].partition(":")
    predictor = getattr(importlib.import_module(module_name), attribute)()
    predictor.load(dict(case[which], **changes))
    return predictor


def _samples(case: Dict[str, Any]) -> List[List[Any]]:
    import numpy as np

    found: Dict[int, Dict[int, Any]] = {}
    with np.load(case["samples"]) as arrays:
        for name in arrays.files:
            sample, _, position = name.partition("/")
            found.setdefault(int(sample), {})[int(position)] = arrays[name]
    return [[parts[position] for position in sorted(parts)] for _, parts in sorted(found.items())]


def _thread_ticks() -> Dict[str, int]:
    """The time that every thread of this process has computed, in ticks of the system.

    What the system did for it is left out: a thread that gives memory back, as Paddle's does, computes nothing.
    """
    found = {}  # type: Dict[str, int]
    for name in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{name}/stat") as file:
                # behind the name, which may hold anything: state is the third field, the time 14th
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found[name] = int(fields[11])
    return found


def _resident_bytes() -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise OSError("this system does not tell how much memory is used")


def main(arguments: Sequence[str]) -> int:
    path, name = arguments
    with open(path) as file:
        case = json.load(file)
    try:
        answer = {"check": name, "passed": True, "detail": CHECKS[name](case)}
    except Exception as error:  # whatever it is, it is the verdict
        traceback.print_exc()
        answer = {"check": name, "passed": False, "detail": f"{type(error).__name__}: {error}"}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0 if answer["passed"] else 1
