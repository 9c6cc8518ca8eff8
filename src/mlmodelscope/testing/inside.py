"""A predictor and its model files -> a verdict on what only its own process can see (Python 3.6 syntax, numpy only).

The contract suite talks to a framework through the worker's shim, where every array is copied on the way. What a copy
would hide is looked at here, inside the framework's own environment: `python -c ... CASE CHECK` with the folder of the
portable layer on the path. CASE is a JSON file:

    {"entry_point", "open": MODEL, "large": MODEL or null, "large_bytes",
     "samples": an .npz of arrays "<sample>/<input>", "threads": of the process's variables,
     "threads_beside": how many more may wait for a processor while they hand work to each other, if not 0}

and MODEL what `Predictor.load` takes. The answer is a line of JSON: {"check", "passed", "detail"}.
"""

import gc
import importlib
import json
import os
import select
import sys
import time
import traceback
from typing import Any, Dict, List, Sequence, Tuple

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
# long enough to count often; rows enough for every framework to think more threads worth while
_SECONDS = 0.5
_ROWS, _TREE_ROWS = 256, 20000
# how often more threads than asked for may be seen: work that goes from one to the next shows both for a moment
_MOST_ABOVE_ONE, _MOST_ABOVE = 0.1, 0.25
_PAUSE = 0.002


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
    """With threads = 1 no second thread computes, from the first call on: it may be the one that is measured."""
    return _threads_at_a_time(case, 1, 1, warmups=0, most_above=_MOST_ABOVE_ONE)


def as_many_threads_as_asked(case: Dict[str, Any]) -> str:
    """With a large batch, as many threads of this process compute at a time as were asked for."""
    most = case["threads"] + case.get("threads_beside", 0)
    return _threads_at_a_time(case, case["threads"], most, warmups=3, most_above=_MOST_ABOVE)


def _threads_at_a_time(case: Dict[str, Any], threads: int, most: int, warmups: int, most_above: float) -> str:
    import numpy as np

    # the system lists the threads that want a processor whether they have one or not: a busy machine hides none
    watch = _Watch()
    which, rows = ("large", _ROWS) if case["large"] else ("open", _TREE_ROWS)
    predictor = _loaded(case, which, threads=threads)
    sample = [np.repeat(array, rows, axis=0) for array in _samples(case)[0]]
    for _ in range(warmups):
        predictor.predict(sample)
    begin = time.perf_counter()
    while time.perf_counter() - begin < _SECONDS:
        predictor.predict(sample)
    end = time.perf_counter()
    counts = [count for moment, count in watch.finish() if begin <= moment <= end]
    predictor.unload()
    seen = {count: counts.count(count) for count in sorted(set(counts))}
    assert counts, "nobody counted"
    usual = max(seen, key=lambda count: seen[count])
    above = sum(seen[count] for count in seen if count > most) / len(counts)
    told = f"{threads} asked for; computing at a time, and how often that was seen: {seen}"
    assert threads <= usual <= most, told
    assert above <= most_above, told
    return told


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


class _Watch(object):
    """Counts this process's threads that want a processor, again and again, from a process of its own.

    Made before the framework is: a process with threads had better not be copied.
    """

    def __init__(self) -> None:
        watched = os.getpid()
        told, self._telling = os.pipe()
        self._answers, answering = os.pipe()
        self._watcher = os.fork()
        if self._watcher == 0:
            # the end of the watched process, however it comes, closes what this waits for
            os.close(self._telling)
            counts = []
            while not select.select([told], [], [], _PAUSE)[0]:
                counts.append((time.perf_counter(), _wanting(watched)))
            with os.fdopen(answering, "w") as file:
                json.dump(counts, file)
            os._exit(0)
        os.close(told)
        os.close(answering)

    def finish(self) -> List[Tuple[float, int]]:
        os.close(self._telling)
        with os.fdopen(self._answers) as file:
            counts = json.load(file)
        os.waitpid(self._watcher, 0)
        return [(moment, count) for moment, count in counts]


def _wanting(process: int) -> int:
    found = 0
    for thread in os.listdir(f"/proc/{process}/task"):
        try:
            with open(f"/proc/{process}/task/{thread}/stat") as file:
                # behind the name, which may hold anything
                found += file.read().rpartition(")")[2].split()[0] == "R"
        except OSError:  # it has ended
            continue
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
