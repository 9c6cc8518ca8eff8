"""Turns the times that TensorRT reports per layer into layers per call, laid one after the other inside the call."""

import time
from typing import Any, Dict, List, Optional, Tuple

__all__ = ["Profile", "lay_out", "layer_profiler"]

Layer = Dict[str, Any]


class Profile(object):
    """`calls` are the layers of each call so far; None where TensorRT reported none."""

    def __init__(self) -> None:
        self.calls: List[Optional[List[Layer]]] = []
        self._reported: List[Tuple[str, float]] = []

    def attach(self, context: Any, profiler: Any) -> None:
        self._profiler = profiler
        context.profiler = profiler

    def report(self, name: str, milliseconds: float) -> None:
        self._reported.append((name, milliseconds))

    def around(self, run: Any) -> Any:
        """The run of an engine, with the layers that TensorRT reported meanwhile put inside it."""

        def profiled(stream: Any) -> None:
            self._reported = []
            begin = time.monotonic_ns()
            run(stream)
            self.calls.append(lay_out(self._reported, begin, time.monotonic_ns()))

        return profiled


def lay_out(reported: List[Tuple[str, float]], begin_ns: int, end_ns: int) -> Optional[List[Layer]]:
    """TensorRT gives no start times. What is not layers (the launch) goes before the first one."""
    durations = [int(milliseconds * 1e6) for _, milliseconds in reported]
    start = max(begin_ns, end_ns - sum(durations))
    layers = []
    for (name, _), duration in zip(reported, durations):  # noqa: B905 - zip(strict=) is younger than Python 3.6
        duration = min(duration, end_ns - start)
        layers.append({"name": name, "start_ns": start, "duration_ns": duration, "provider": "TensorRT"})
        start += duration
    return layers or None


def layer_profiler(trt: Any, profile: Profile) -> Any:
    """An IProfiler; its class exists only where TensorRT does."""

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            profile.report(layer_name, ms)

    return Profiler()
