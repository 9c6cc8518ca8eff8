"""Traces of whole evaluations of a tiny real model: what is in them, what they leave alone, what the exports hold."""

import json
import os
import textwrap

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlmodelscope.analyse.layers import summarise_trace
from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.request import Environment, Limits, ResolvedFramework, SingleStream
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.library import make_request
from mlmodelscope.manifest import load_manifest
from mlmodelscope.worker.job import Job, asset_key
from mlmodelscope.worker.launch import launch

PARTS = ["decode", "transform", "predict", "postprocess"]


def convolutions() -> bytes:
    """[n, 3, 8, 8] -> scores [n, 3]; a residual block, so that the runtime has something to merge."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((3, 3, 3, 3), np.float32), name) for name in ("w1", "w2")]
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "w1"], ["c1"], "first", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c1"], ["r1"], "cut"),
            helper.make_node("Conv", ["r1", "w2"], ["c2"], "second", pads=[1, 1, 1, 1]),
            helper.make_node("Add", ["c2", "image"], ["sum"], "shortcut"),
            helper.make_node("GlobalAveragePool", ["sum"], ["pooled"], "pool"),
            helper.make_node("Flatten", ["pooled"], ["scores"], "flat"),
        ],
        "residual",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def evaluate(lab, level, **fields):
    lab.write("residual.onnx", convolutions())
    model = fields.pop("model", None) or lab.model("residual", source={"graph_path": "residual.onnx"})
    return lab.evaluate(model, dataset=lab.photos(), trace_level=level, **fields)


def trace_of(lab, record):
    with lab.workspace() as workspace:
        return workspace.trace(record.id)


def queries(trace, deepest):
    return [span for span in trace.spans if span.name == "query" and span.attributes["deepest_level"] == deepest]


class TestLevels:
    def test_none_records_nothing_and_starts_no_further_launch(self, lab):
        record = evaluate(lab, TraceLevel.NONE)
        assert (record.trace, len(record.launches)) == (None, 1)
        assert [item.name for item in record.artifacts] == ["latencies.npz", "predictions.jsonl.gz"]

    def test_model_traces_ten_queries_in_a_launch_that_is_not_measured(self, lab):
        record = evaluate(lab, TraceLevel.MODEL, scenario={"launches": 2, "min_queries": 4})
        assert (record.trace.level, record.trace.is_truncated) == (TraceLevel.MODEL, False)
        assert (record.trace.clock, record.trace.queries, record.trace.launch.index) == ("monotonic", 10, 2)
        assert [launch.index for launch in record.launches] == [0, 1]
        assert (record.performance.latency_median_ns.n, record.performance.clock) == (4, "monotonic")
        trace = trace_of(lab, record)
        assert len(trace.spans) == record.trace.spans
        assert len(queries(trace, "model")) == 10
        assert queries(trace, "framework") == []
        assert max(span.level for span in trace.spans) == TraceLevel.MODEL
        for query in queries(trace, "model"):
            children = [span for span in trace.spans if span.parent_id == query.span_id]
            assert [span.name for span in children] == PARTS
            assert children[0].start_ns == query.start_ns
            assert children[-1].end_ns == query.end_ns
            assert query.attributes["samples"][0].endswith(".png")

    def test_framework_adds_the_layers_with_the_nodes_of_the_model(self, lab):
        record = evaluate(lab, TraceLevel.FRAMEWORK, trace_queries=3)
        assert record.trace.level is TraceLevel.FRAMEWORK
        assert not any("trace" in text for text in record.warnings)
        trace = trace_of(lab, record)
        assert (len(queries(trace, "model")), len(queries(trace, "framework"))) == (3, 3)
        layers = [span for span in trace.spans if span.level is TraceLevel.FRAMEWORK]
        for layer in layers:
            parent = trace.spans[layer.parent_id]
            assert parent.name == "predict"
            assert parent.start_ns <= layer.start_ns <= layer.end_ns <= parent.end_ns
            assert layer.attributes["provider"] == "CPUExecutionProvider"
        first = [layer for layer in layers if layer.parent_id == layers[0].parent_id]
        nodes = [node for layer in first for node in layer.attributes["nodes"]]
        assert sorted(nodes) == ["cut", "first", "flat", "pool", "second", "shortcut"]
        assert any({"first", "cut"} <= set(layer.attributes["nodes"]) for layer in first)
        summary = summarise_trace(trace)
        assert sum(layer.share for layer in summary.layers) == pytest.approx(1)
        assert set(summary.parts_ns) == set(PARTS)

    def test_the_launch_has_a_span_for_every_stage_and_one_anchor(self, lab):
        record = evaluate(lab, TraceLevel.MODEL, trace_queries=1)
        trace = trace_of(lab, record)
        root = trace.spans[0]
        assert (root.name, root.parent_id) == ("launch", None)
        stages = [span.name for span in trace.spans if span.parent_id == 0]
        assert stages == ["start", "load", "prepare", "warmup", "trace"]
        assert {span.clock for span in trace.spans} == {"monotonic"}
        assert root.start_ns < trace.anchor_ns < root.end_ns
        assert trace.started_at == record.trace.launch.started_at
        assert len(trace.trace_id) == 32

    def test_a_traced_launch_shows_the_pipeline_also_when_inference_alone_is_timed(self, lab):
        record = evaluate(lab, TraceLevel.MODEL, scenario={"timed": "inference"}, trace_queries=2)
        assert record.performance.parts_ns == {}
        assert set(summarise_trace(trace_of(lab, record)).parts_ns) == set(PARTS)

    def test_application_leaves_the_model_out(self, lab):
        trace = trace_of(lab, evaluate(lab, TraceLevel.APPLICATION, trace_queries=1))
        assert "predict" not in {span.name for span in trace.spans}
        assert "decode" in {span.name for span in trace.spans}

    def test_what_cannot_be_recorded_is_refused(self, lab):
        with pytest.raises(UsageError, match="hardware"):
            evaluate(lab, TraceLevel.HARDWARE)


class TestWithoutLayers:
    def test_a_framework_without_a_profile_says_so_and_ends_at_the_model(self, lab):
        record = evaluate(lab, TraceLevel.FRAMEWORK, model=lab.function("plain", "pass"))
        assert (record.status, record.trace.level) == ("succeeded", TraceLevel.MODEL)
        assert "null has no layer profile here: the trace ends at level model" in record.warnings

    def test_a_traced_launch_that_fails_costs_the_trace_only(self, lab):
        count = lab.root / "count"
        source = f"""
        import pathlib
        count = pathlib.Path({str(count)!r})
        number = int(count.read_text()) + 1 if count.exists() else 1
        count.write_text(str(number))
        if number > 8:
            raise ValueError("enough")
        """
        model = lab.function("tired", textwrap.dedent(source))
        record = evaluate(lab, TraceLevel.MODEL, model=model, measure="performance")
        assert (record.status, record.trace) == ("succeeded", None)
        assert record.performance is not None
        assert any("there is no trace" in text and "enough" in text for text in record.warnings)


SIMULATOR = """
    import numpy

    class Predictor:
        name = "simulator"
        packages = ()
        environment = {}
        formats = (".onnx",)
        _time = 500

        def load(self, model):
            return {"framework": "simulator", "version": "1", "threads": 1, "provider": "none", "optimization": "none",
                    "precision": "float32", "inputs": [], "outputs": []}

        def predict(self, inputs):
            self._time += 1_000_000
            return [numpy.zeros((1, 3), numpy.float32)]

        def unload(self):
            pass

        def now_ns(self):
            return self._time
"""


def simulated(lab, tmp_path, **changes):
    """A launch of a predictor with a clock of its own."""
    (tmp_path / "simulator.py").write_text(textwrap.dedent(SIMULATOR))
    model = load_manifest((lab.root / "colours.yml").read_text() if lab.model() else "", origin="colours.yml")
    paths = {asset_key(model.source.graph): "colours.onnx", asset_key(model.outputs[0].features): "labels.txt"}
    folder = lab.root / "run"
    folder.mkdir()
    photo = next((lab.root / "photos").rglob("*.png")) if lab.photos() else None
    job = Job(
        index=0,
        model=model,
        dataset=None,
        inputs=(str(photo),),
        samples=None,
        files={key: str(lab.root / name) for key, name in paths.items()},
        framework=ResolvedFramework(name="simulator", version="1", distribution="-", entry_point="simulator:Predictor"),
        environment=Environment(),
        options={},
        scenario=SingleStream(launches=1, min_queries=5),
        measure="performance",
        is_first=True,
        threads=1,
        seed=0,
        run_folder=str(folder),
        cache_folder=str(folder),
        spawned_ns=0,
        **changes,
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return launch(job, Limits(run_seconds=60), lab.environment(PYTHONPATH=path)), folder


class TestSimulatedTime:
    def test_latencies_are_of_the_predictors_clock_and_labelled(self, lab, tmp_path):
        result, folder = simulated(lab, tmp_path)
        stamps = np.load(folder / "stamps-0.npy")
        assert result["launch"]["clock"] == "simulated"
        assert stamps.shape == (5, 5)
        assert (stamps[:, -1] - stamps[:, 0] == 1_000_000).all()
        assert result["launch"]["first_inference_ns"] == 1_000_000
        assert result["launch"]["load_ns"] > 0

    def test_spans_name_their_clock(self, lab, tmp_path):
        from mlmodelscope.trace.file import decode_trace

        result, folder = simulated(lab, tmp_path, trace_level=TraceLevel.MODEL, trace_queries=2, trace_id="ab")
        trace = decode_trace((folder / "trace.npz").read_bytes())
        clocks = {span.name: span.clock for span in trace.spans}
        assert (clocks["launch"], clocks["load"]) == ("monotonic", "monotonic")
        assert (clocks["query"], clocks["predict"]) == ("simulated", "simulated")
        assert result["trace"]["clock"] == "simulated"
        assert summarise_trace(trace).parts_ns == {"decode": 0, "transform": 0, "predict": 1_000_000, "postprocess": 0}


class TestCommands:
    def test_show_and_export(self, lab):
        lab.write("residual.onnx", convolutions())
        model, photos = lab.model("residual", source={"graph_path": "residual.onnx"}), lab.photos()
        quick = ["--launches", "1", "--queries", "2", "--duration", "0", "--measure", "performance"]
        done = lab.run(
            "evaluate", model, "-d", photos, *quick, "--trace-level", "framework", "--trace-queries", "2", "--json"
        )
        assert done.code == 0
        identity = done.json["id"]
        assert "launch 2/2: tracing" in done.err
        shown = lab.run("trace", "show", identity, "--layers", "2")
        assert "median query" in shown.out
        assert "slowest 2 of" in shown.out
        assert "first + cut" in shown.out
        summary = lab.run("trace", "show", identity, "--json").json
        assert summary["facts"]["level"] == 3
        assert summary["summary"]["queries"] == 2
        assert f"mlmodelscope trace show {identity}" in lab.run("show", identity).out
        assert lab.run("trace", "export", identity).code == 0
        events = json.loads((lab.root / f"{identity}.json").read_text())["traceEvents"]
        assert {"launch", "query", "predict"} <= {event["name"] for event in events}
        assert lab.run("trace", "export", identity, "--format", "perfetto", "-o", "out.pftrace").code == 0
        assert (lab.root / "out.pftrace").read_bytes()[0] == 0x0A
        assert json.loads(lab.run("trace", "export", identity, "-o", "-").out)["otherData"]["level"] == "framework"

    def test_a_record_without_a_trace_says_how_to_get_one(self, lab):
        record = evaluate(lab, TraceLevel.NONE)
        done = lab.run("trace", "export", record.id)
        assert (done.code, done.out) == (2, "")
        assert "has no trace" in done.err
        assert "--trace-level" in done.err

    def test_a_file_that_cannot_be_written_is_an_error_of_the_host(self, lab):
        record = evaluate(lab, TraceLevel.MODEL, trace_queries=1)
        done = lab.run("trace", "export", record.id, "-o", str(lab.root / "absent" / "t.json"))
        assert done.code == 3
        assert "cannot be written" in done.err


def test_too_many_queries_are_refused():
    with pytest.raises(UsageError, match="trace_queries"):
        make_request(models=("a",), trace_queries=10**6)
