"""Profiles of TensorFlow become layers per call on our clock."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace as Record
from typing import Any

import pytest

from mlmodelscope.predictors import tensorflowprofile
from mlmodelscope.predictors.tensorflowprofile import EagerProfile, SessionProfile, layers_of_plane, layers_of_step

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def node(name: str, label: str, start: int, **changes: Any) -> Record:
    facts: dict[str, Any] = {
        "node_name": name,
        "timeline_label": label,
        "all_start_nanos": start,
        "all_start_micros": start // 1000,
        "op_start_rel_nanos": 10,
        "op_end_rel_nanos": 110,
        "op_start_rel_micros": 0,
        "op_end_rel_micros": 1,
        "output": [],
        "memory": [],
    }
    return Record(**{**facts, **changes})


def tensor(kind: int, sizes: list[int], size_bytes: int) -> Record:
    shape = Record(dim=[Record(size=size) for size in sizes])
    allocation = Record(requested_bytes=size_bytes)
    return Record(tensor_description=Record(dtype=kind, shape=shape, allocation_description=allocation))


def step(*nodes: Record, device: str = CPU) -> Record:
    return Record(dev_stats=[Record(device=device, node_stats=list(nodes))])


def test_a_step_becomes_layers_in_the_order_of_execution():
    relu = node("z", "[cpu 36B 36B] z = Relu(y)", 7_000)
    product = node("y", "y = MatMul(x, w)", 5_000, output=[tensor(1, [3, 3], 36)], memory=[Record(total_bytes=40)])
    first, second = layers_of_step(step(relu, product), shift_ns=-1_000)
    assert first == {
        "name": "y",
        "start_ns": 4_010,
        "duration_ns": 100,
        "operator": "MatMul",
        "provider": "CPU:0",
        "outputs": [{"element_type": "float32", "shape": [3, 3]}],
        "output_bytes": 36,
        "allocated_bytes": 40,
    }
    assert (second["name"], second["operator"], second["outputs"]) == ("z", "Relu", [])


def test_what_computes_nothing_is_no_layer():
    nodes = [
        node("_SOURCE", "_SOURCE = NoOp()", 1),
        node("w", "w = Const()", 2),
        node("_arg_x_0_0", "_arg_x_0_0 = _Arg()", 3),
        node("_retval_y", "_retval_y = _Retval(y)", 4),
    ]
    assert layers_of_step(step(*nodes), 0) == []


def test_devices_that_repeat_others_are_passed_over():
    kernel = node("y:MatMul", "id=6", 1)
    assert layers_of_step(step(kernel, device="/host:CPU"), 0) == []
    assert layers_of_step(step(kernel, device="/job:localhost/device:GPU:0/stream:all"), 0) == []


def test_microseconds_serve_where_nanoseconds_are_missing():
    old = node("y", "y = MatMul(x, w)", 0, all_start_micros=5, op_end_rel_nanos=0, op_end_rel_micros=3)
    (layer,) = layers_of_step(step(old), 0)
    assert (layer["start_ns"], layer["duration_ns"]) == (5_000, 3_000)


def test_every_call_of_a_session_has_its_own_shift(monkeypatch):
    walls = iter([1_000, 9_000])
    monkeypatch.setattr(tensorflowprofile, "_wall_ns", lambda: next(walls))
    monkeypatch.setattr(tensorflowprofile, "_monotonic_ns", lambda: 500)

    def call(*inputs: Any, run_metadata: Any) -> list[Any]:
        run_metadata.step_stats = step(node("y", "y = MatMul(x, w)", 10_000)) if inputs[0] else step()
        return list(inputs)

    profile = SessionProfile(call, Record)
    assert profile.run(1) == [1]
    assert profile.run(0) == [0]
    first, second = profile.finish()
    assert first is not None
    assert first[0]["start_ns"] == 10_000 - 500 + 10
    assert second is None


def plane(*events: tuple[str, int, int], start_ns: int = 0) -> Record:
    names = sorted({name for name, _, _ in events})
    found = [
        Record(metadata_id=names.index(name), offset_ps=offset, duration_ps=lasts) for name, offset, lasts in events
    ]
    metadata = {index: Record(name=name) for index, name in enumerate(names)}
    return Record(name="/host:CPU", event_metadata=metadata, lines=[Record(timestamp_ns=start_ns, events=found)])


def test_a_plane_is_cut_into_calls_by_its_marks():
    host = plane(
        ("mlmodelscope call 1", 9_000_000, 4_000_000),
        ("model/y:MatMul", 10_000_000, 1_000_000),
        ("mlmodelscope call 0", 1_000_000, 5_000_000),
        ("model/z:Relu", 3_000_000, 500_000),
        ("model/y:_FusedMatMul#shape=(1,4)#", 2_000_000, 700_000),
        ("warmup:MatMul", 100, 100),
        start_ns=50,
    )
    first, second, lost = layers_of_plane(host, [70_000, 90_000, 99_000])
    assert first == [
        {"name": "model/y", "start_ns": 71_000, "duration_ns": 700, "operator": "_FusedMatMul"},
        {"name": "model/z", "start_ns": 72_000, "duration_ns": 500, "operator": "Relu"},
    ]
    assert second == [{"name": "model/y", "start_ns": 91_000, "duration_ns": 1_000, "operator": "MatMul"}]
    assert lost is None


def test_what_the_runtime_does_besides_is_no_layer():
    names = ("ExecutorState::Process", "EagerLocalExecute: __inference", "FunctionRun", "x:_Arg", "w:Const")
    host = plane(("mlmodelscope call 0", 0, 9_000), *((name, 10, 10) for name in names))
    assert layers_of_plane(host, [0]) == [None]


class Profiler:
    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.folder = ""
        self.marks: list[str] = []

    def ProfilerOptions(self, **options: int) -> dict[str, int]:  # noqa: N802 - the framework's name
        return options

    def start(self, folder: str, options: dict[str, int]) -> None:
        self.folder = folder
        if self.fails:
            raise RuntimeError("another profiler is running")

    def stop(self) -> None:
        pass

    def Trace(self, name: str) -> Any:  # noqa: N802 - the framework's name
        self.marks.append(name)
        return contextlib.nullcontext()


def test_a_profile_marks_its_calls_and_leaves_no_files(tmp_path, monkeypatch):
    profiler = Profiler()
    profile = EagerProfile(profiler, lambda *inputs: list(inputs), str(tmp_path))
    assert profile.run(3) == [3]
    assert profile.run(4) == [4]
    monkeypatch.setattr(tensorflowprofile, "_planes", lambda _: [])
    assert profile.finish() == [None, None]
    assert profiler.marks == ["mlmodelscope call 0", "mlmodelscope call 1"]
    assert list(tmp_path.iterdir()) == []


def test_a_profiler_that_does_not_start_leaves_no_files(tmp_path):
    with pytest.raises(RuntimeError, match="another profiler"):
        EagerProfile(Profiler(fails=True), list, str(tmp_path))
    assert list(tmp_path.iterdir()) == []
