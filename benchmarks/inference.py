"""Claims about the timed loop: the scenario function of a real run against a bare loop, and our own cost per query."""

from __future__ import annotations

import gc
import importlib.util
import statistics
import sys
import tempfile
import time
from array import array
from pathlib import Path

import numpy as np

from harness import Absolute, Block, Claim, Skipped, run
from mlmodelscope.predictors import null, onnxruntime
from mlmodelscope.worker.shim import inference_loop

QUERIES = 12
NULL_QUERIES = 20_000
SIDE = 112


def slow_model(path: Path) -> None:
    """A chain of convolutions that takes ten milliseconds or more on two threads."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    nodes, weights = [], []
    name, channels = "input", 3
    for i in range(6):
        kernel = rng.standard_normal((64, channels, 3, 3), dtype=np.float32) * 0.05
        weights.append(numpy_helper.from_array(kernel, f"w{i}"))
        nodes.append(helper.make_node("Conv", [name, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        name, channels = f"r{i}", 64
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["output"]))
    graph = helper.make_graph(
        nodes,
        "slow",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", 64, 1, 1])],
        weights,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def scenario_latency(predictor: onnxruntime.Predictor, queries: list[list[np.ndarray]]) -> Block:
    progress = memoryview(array("q", [0]))

    def block() -> float:
        begins, ends = inference_loop(predictor.predict, queries, 0, QUERIES, time.monotonic_ns, progress)
        return statistics.median([end - begin for begin, end in zip(begins, ends, strict=True)])

    return block


def bare_latency(session: object, queries: list[list[np.ndarray]]) -> Block:
    def block() -> float:
        times = []
        for i in range(QUERIES):
            feed = {"input": queries[i % len(queries)][0]}
            begin = time.monotonic_ns()
            session.run(["output"], feed)  # type: ignore[attr-defined]
            times.append(time.monotonic_ns() - begin)
        return statistics.median(times)

    return block


def null_cost() -> Block:
    """Microseconds per query of the whole loop, everything included."""
    predictor = null.Predictor()
    predictor.load({"graph_path": "", "inputs": [], "outputs": [], "threads": 1, "options": {}})
    queries = [[np.zeros((1, 3, 224, 224), np.float32)] for _ in range(64)]
    progress = memoryview(array("q", [0]))

    def block() -> float:
        # as after a worker's warm-up: what exists by then is no garbage, and the loop's first collection is quick
        gc.freeze()
        begin = time.perf_counter()
        inference_loop(predictor.predict, queries, 0, NULL_QUERIES, time.monotonic_ns, progress)
        return (time.perf_counter() - begin) * 1e6 / NULL_QUERIES

    return block


def loadgen_cost(folder: str) -> Block:
    """Microseconds per query of MLPerf LoadGen's single stream with a system under test in Python that does nothing."""
    import mlperf_loadgen as lg

    stamps: list[float] = []

    def issue(samples: list) -> None:
        stamps.append(time.perf_counter())
        lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0) for sample in samples])

    def block() -> float:
        stamps.clear()
        settings = lg.TestSettings()
        settings.scenario = lg.TestScenario.SingleStream
        settings.mode = lg.TestMode.PerformanceOnly
        settings.min_query_count = settings.max_query_count = NULL_QUERIES
        settings.min_duration_ms = 0
        output = lg.LogOutputSettings()
        output.outdir = folder
        output.copy_summary_to_stdout = False
        log = lg.LogSettings()
        log.log_output = output
        log.enable_trace = False
        system = lg.ConstructSUT(issue, lambda: None)
        library = lg.ConstructQSL(64, 64, lambda samples: None, lambda samples: None)
        lg.StartTestWithLogSettings(system, library, settings, log)
        lg.DestroyQSL(library)
        lg.DestroySUT(system)
        return (stamps[-1] - stamps[0]) * 1e6 / (len(stamps) - 1)

    return block


def claims() -> list[Claim | Absolute | Skipped]:
    folder = tempfile.mkdtemp(prefix="mlmodelscope-bench-")
    path = Path(folder) / "slow.onnx"
    slow_model(path)
    predictor = onnxruntime.Predictor()
    predictor.load({"graph_path": str(path), "inputs": [], "outputs": [], "threads": 2, "options": {}})
    queries = [[np.random.default_rng(i).random((1, 3, SIDE, SIDE), np.float32)] for i in range(8)]
    found: list[Claim | Absolute | Skipped] = [
        Claim(
            "inference_loop / bare session.run",
            1.01,
            ours=scenario_latency(predictor, queries),
            theirs=bare_latency(predictor._session, queries),
        ),
        Absolute("null_predictor us/query", 2, null_cost()),
    ]
    if importlib.util.find_spec("mlperf_loadgen") is None:
        found.append(Skipped("null_predictor / loadgen null", "mlcommons-loadgen is not installed"))
    else:
        found.append(Claim("null_predictor / loadgen null", 1, ours=null_cost(), theirs=loadgen_cost(folder)))
    return found


if __name__ == "__main__":
    sys.exit(run(claims()))
