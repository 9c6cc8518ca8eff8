"""Whole evaluations of a tiny real model on real files, through the library: what the record holds, why it fails."""

import gzip
import hashlib
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.core.errors import DigestError, InputError, ManifestError, SampleError, UnsatisfiableError, UsageError
from mlmodelscope.library import make_request

QUICK = {"type": "single_stream", "launches": 1, "min_duration_ns": 0, "min_queries": 4, "warmup_queries": 1}


def stamps_of(lab, record) -> list[np.ndarray]:
    with lab.workspace() as workspace:
        content = workspace.store.read_artifact(record.artifact("latencies.npz"))
    with np.load(io.BytesIO(content)) as tables:
        return [tables[f"launch_{index}"] for index in range(len(tables.files))]


def predictions_of(lab, record) -> list[dict]:
    with lab.workspace() as workspace:
        content = workspace.store.read_artifact(record.artifact("predictions.jsonl.gz"))
    return [json.loads(line) for line in gzip.decompress(content).splitlines()]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class TestRecord:
    def test_holds_everything_that_decided_the_result(self, lab):
        model, photos = lab.model(), lab.photos()
        scenario = {"launches": 2, "min_queries": 10}
        record = lab.evaluate(model, dataset=photos, scenario=scenario, threads=1, seed=3)
        assert record.status == "succeeded"
        assert record.failure is None
        assert record.model.manifest.text == Path(model).read_text()
        assert record.model.manifest.base == str(lab.root)
        assert len(record.model.manifest.digest) == 64
        assert record.model.weights_digest == sha256(lab.root / "colours.onnx")
        assert {asset.role: asset.sha256 for asset in record.model.assets} == {
            "graph": sha256(lab.root / "colours.onnx"),
            "labels": sha256(lab.root / "labels.txt"),
        }
        assert record.model.steps
        assert record.dataset.manifest.text == Path(photos).read_text()
        assert (record.dataset.name, record.dataset.split, record.dataset.sample_count) == ("photos", "test", 6)
        assert [asset.role for asset in record.dataset.assets] == ["data"]
        assert record.software.framework == "onnxruntime"
        assert record.software.framework_version == version("onnxruntime")
        assert record.software.packages["numpy"] == version("numpy")
        assert record.software.packages["pillow"] == version("pillow")
        assert record.software.environment.kind == "local"
        assert record.system.usable_cpus >= 1
        assert record.system.memory_bytes > 0
        assert (record.execution.threads, record.execution.batch_size) == (1, 1)
        assert (record.execution.precision, record.execution.provider) == ("float32", "CPUExecutionProvider")
        assert (record.scenario.launches, record.scenario.min_queries, record.seed) == (2, 10, 3)
        assert record.limits.run_seconds == 3600
        assert record.created_at < record.finished_at

    def test_raw_latencies_are_kept_for_every_launch(self, lab):
        record = lab.evaluate(lab.model(), dataset=lab.photos(), scenario={"launches": 2, "min_queries": 10})
        tables = stamps_of(lab, record)
        assert [table.shape for table in tables] == [(5, 5), (5, 5)]
        assert [launch.queries for launch in record.launches] == [5, 5]
        for table in tables:
            assert (np.diff(table, axis=1) >= 0).all()
            assert (table[1:, 0] >= table[:-1, -1]).all()
        medians = [np.median(table[:, -1] - table[:, 0]) for table in tables]
        latency = record.performance.latency_median_ns
        assert latency.value == pytest.approx(np.mean(medians))
        assert (latency.n, latency.launches, latency.interval.basis) == (10, 2, "launches")
        assert set(record.performance.parts_ns) == {"decode", "transform", "predict", "postprocess"}

    def test_answers_are_right_and_kept(self, lab):
        record = lab.evaluate(lab.model(), dataset=lab.photos(), measure="accuracy", scenario={"launches": 5})
        assert (record.accuracy.top1.value, record.accuracy.top1.n) == (pytest.approx(5 / 6), 6)
        assert (record.accuracy.samples, record.accuracy.labelled) == (6, 6)
        assert record.performance is None
        assert len(record.launches) == 1
        found = {
            line["sample"]: (line["label"], line["answer"]["classes"][0]["label"])
            for line in predictions_of(lab, record)
        }
        assert found == {
            "0-red/bright.png": (0, "red"),
            "0-red/dark.png": (0, "red"),
            "1-green/bright.png": (1, "green"),
            "1-green/misplaced.png": (1, "red"),
            "2-blue/bright.png": (2, "blue"),
            "2-blue/dark.png": (2, "blue"),
        }

    def test_performance_alone_runs_no_accuracy_pass(self, lab):
        record = lab.evaluate(lab.model(), dataset=lab.photos(), measure="performance")
        assert record.accuracy is None
        assert [item.name for item in record.artifacts] == ["latencies.npz"]

    def test_one_launch_is_labelled_so(self, lab):
        record = lab.evaluate(lab.model(), dataset=lab.photos(), scenario={"min_queries": 20})
        assert record.performance.latency_median_ns.interval.basis == "single_launch"
        assert record.performance.throughput.interval is None

    def test_a_missing_checksum_is_a_warning(self, lab):
        model = lab.model(source={"graph_path": "colours.onnx"})
        assert any("graph" in text for text in lab.evaluate(model, dataset=lab.photos()).warnings)


class TestScenario:
    def test_inference_alone_over_the_performance_set(self, lab):
        scenario = {"timed": "inference", "performance_set": 4, "min_queries": 9}
        record = lab.evaluate(lab.model(), dataset=lab.photos(), scenario=scenario)
        assert len(record.dataset.performance_set) == 4
        assert record.dataset.performance_set == tuple(sorted(record.dataset.performance_set))
        (table,) = stamps_of(lab, record)
        assert table.shape == (9, 2)
        assert record.performance.parts_ns == {}
        assert record.accuracy.samples == 6

    @pytest.mark.parametrize("timed", ["pipeline", "inference"])
    def test_batches_give_the_same_answers(self, lab, timed):
        model, photos = lab.model(), lab.photos()
        scenario = {"type": "batched", "batch_size": 4, "timed": timed}
        record = lab.evaluate(model, dataset=photos, scenario=scenario)
        assert record.status == "succeeded"
        assert record.execution.batch_size == 4
        assert record.launches[0].samples == 4 * record.launches[0].queries
        single = lab.evaluate(model, dataset=photos, measure="accuracy")
        assert predictions_of(lab, record) == predictions_of(lab, single)
        assert record.accuracy == single.accuracy

    def test_throughput_counts_samples(self, lab):
        record = lab.evaluate(lab.model(), dataset=lab.photos(), scenario={"type": "batched", "batch_size": 3})
        (table,) = stamps_of(lab, record)
        spent = float((table[:, -1] - table[:, 0]).sum())
        assert record.performance.throughput.value == pytest.approx(3 * len(table) * 1e9 / spent)

    def test_the_seed_chooses_the_samples(self, lab):
        model, photos = lab.model(), lab.photos()

        def chosen(seed: int) -> list[str]:
            record = lab.evaluate(model, dataset=photos, measure="accuracy", samples=3, seed=seed)
            assert record.dataset.sample_count == 3
            return [line["sample"] for line in predictions_of(lab, record)]

        assert chosen(0) == chosen(0)
        assert len({tuple(chosen(seed)) for seed in range(4)}) > 1

    def test_the_null_framework_runs_the_same_path(self, lab):
        record = lab.evaluate(lab.function("nothing", "pass"), dataset=lab.noise(), scenario={"timed": "inference"})
        assert (record.software.framework, record.model.weights_digest) == ("null", None)
        assert record.accuracy.labelled == 0

    def test_launches_of_several_models_are_interleaved(self, lab):
        models = (lab.model("first"), lab.model("second", color_layout="BGR"))
        request = make_request(models=models, dataset=lab.photos(), scenario={**QUICK, "launches": 3})
        with lab.workspace() as workspace:
            first, second = workspace.evaluate(request)
        assert (first.model.name, second.model.name) == ("first", "second")
        assert (first.request.models, second.request.models) == (models[:1], models[1:])
        order = sorted((launch.anchor_ns, run) for run in (0, 1) for launch in (first, second)[run].launches)
        assert [run for _, run in order] == [0, 1, 0, 1, 0, 1]

    def test_a_model_that_fails_does_not_stop_the_others(self, lab):
        models = (lab.function("bad", "raise ValueError"), lab.model("good"))
        request = make_request(models=models, dataset=lab.photos(), scenario={**QUICK, "launches": 2})
        with lab.workspace() as workspace:
            bad, good = workspace.evaluate(request)
        assert (bad.status, good.status) == ("failed", "succeeded")
        assert len(good.launches) == 2


class TestInputs:
    def test_files_instead_of_a_data_set(self, lab, monkeypatch):
        lab.photos()
        monkeypatch.chdir(lab.root / "photos")
        record = lab.evaluate(lab.model(), inputs=("0-red/bright.png", "1-green/bright.png"))
        assert (record.dataset.name, record.dataset.sample_count, record.dataset.manifest) == ("inputs", 2, None)
        assert [asset.sha256 for asset in record.dataset.assets] == [
            sha256(lab.root / "photos" / name) for name in ("0-red/bright.png", "1-green/bright.png")
        ]
        assert (record.accuracy.samples, record.accuracy.labelled) == (2, 0)

    def test_inputs_can_be_repeated_from_another_folder(self, lab, monkeypatch, tmp_path_factory):
        lab.photos()
        monkeypatch.setenv("HOME", str(lab.root))  # which is hidden in the record
        monkeypatch.chdir(lab.root / "photos")
        record = lab.evaluate(lab.model(), inputs=("0-red/bright.png",))
        assert record.request.inputs == ("~/photos/0-red/bright.png",)
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        with lab.workspace() as workspace:
            repeated, reproduction = workspace.reproduce(record.id)
        assert repeated.failure is None
        assert reproduction.accuracy == "same answers"

    def test_a_url_and_a_file_with_a_strange_name(self, lab):
        lab.photos()
        image = (lab.root / "photos/2-blue/bright.png").read_bytes()
        odd = lab.write("wow!: 100% .png", image)
        handler = partial(SilentHandler, directory=str(lab.root))
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            url = f"http://127.0.0.1:{server.server_port}/photos/0-red/bright.png"
            try:
                with lab.workspace() as workspace:
                    answers = workspace.predict(lab.model(), [url, str(odd)])
            finally:
                server.shutdown()
                thread.join()
        assert [item.answer.classes[0].label for item in answers] == ["red", "blue"]
        assert [item.sample for item in answers] == ["bright.png", "wow!: 100% .png"]
        assert lab.records() == []

    def test_the_same_file_twice_is_two_samples(self, lab):
        lab.photos()
        path = str(lab.root / "photos/0-red/bright.png")
        with lab.workspace() as workspace:
            answers = workspace.predict(lab.model(), [path, path])
        assert [item.sample for item in answers] == ["bright.png", "bright.png#2"]

    def test_predict_raises_what_an_evaluation_would_store(self, lab):
        with lab.workspace() as workspace, pytest.raises(SampleError, match=r"colours\.yml"):
            workspace.predict(lab.model(), [lab.model()])
        with lab.workspace() as workspace, pytest.raises(InputError, match="not there"):
            workspace.predict(lab.model(), ["absent.png"])
        assert lab.records() == []


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class TestMistakesBeforeAnythingRuns:
    """They raise, and nothing is stored."""

    def refused(self, lab, error, model, **fields):
        with pytest.raises(error) as caught:
            lab.evaluate(model, **fields)
        assert lab.records() == []
        return caught.value

    def test_a_manifest_cut_short(self, lab):
        text = Path(lab.model()).read_text()
        cut = lab.write("cut.yml", text[: text.index("outputs")])
        error = self.refused(lab, ManifestError, str(cut), dataset=lab.photos())
        assert [problem["code"] for problem in error.fields["problems"]]

    @pytest.mark.parametrize("changes", [{"inputs": "image"}, {"framework": 3}, {"version": [1]}, {"outputs": []}])
    def test_a_manifest_of_wrong_types(self, lab, changes):
        error = self.refused(lab, ManifestError, lab.model(**changes), dataset=lab.photos())
        (problem, *_) = error.fields["problems"]
        assert problem["line"] > 0
        assert next(iter(changes)) in problem["path"]

    def test_nothing_to_run_on(self, lab):
        self.refused(lab, UsageError, lab.model())

    def test_both_a_data_set_and_inputs(self, lab):
        error = self.refused(lab, UsageError, lab.model(), dataset=lab.photos(), inputs=(lab.model(),))
        assert error.message == "give either a data set or inputs, not both"

    def test_a_framework_that_is_not_there(self, lab):
        model = lab.model(framework={"name": "onnxruntime", "version": ">=99"})
        error = self.refused(lab, UnsatisfiableError, model, dataset=lab.photos(), environment="local")
        assert error.fields["installed"] == version("onnxruntime")


class TestFailures:
    """They are stored, and the record says at which stage and why."""

    def failure(self, lab, model, **fields):
        record = lab.evaluate(model, **fields)
        assert record.status == "failed"
        assert record.accuracy is None
        assert record.artifacts == ()
        return record.failure

    @pytest.mark.parametrize("measure", ["accuracy", "both"])
    @pytest.mark.parametrize("batch", [1, 4])
    def test_a_corrupt_image_is_named(self, lab, measure, batch):
        photos = lab.photos()
        broken = lab.root / "photos/1-green/bright.png"
        broken.write_bytes(broken.read_bytes()[:40])
        scenario = {"type": "batched", "batch_size": batch, "min_queries": 20}
        found = self.failure(lab, lab.model(), dataset=photos, measure=measure, scenario=scenario)
        assert (found.code, found.fields["sample"]) == ("sample_invalid", "1-green/bright.png")
        assert "1-green/bright.png" in found.message

    def test_a_corrupt_image_of_the_performance_set_is_named(self, lab):
        photos = lab.photos()
        (lab.root / "photos/0-red/dark.png").write_bytes(b"no image")
        found = self.failure(lab, lab.model(), dataset=photos, scenario={"timed": "inference"})
        assert (found.code, found.stage, found.fields["sample"]) == ("sample_invalid", "prepare", "0-red/dark.png")

    def test_a_data_set_without_images(self, lab):
        photos = lab.photos(colours={})
        (lab.root / "photos/empty").mkdir(parents=True)
        assert self.failure(lab, lab.model(), dataset=photos).code == "input_invalid"

    def test_a_data_set_that_is_not_there(self, lab):
        found = self.failure(lab, lab.model(), dataset=lab.photos(colours={}))
        assert (found.code, found.stage) == ("download_failed", "provision")

    @pytest.mark.parametrize("content", [b"text\n", b"", b"\x1c\0\0\0TFL3" + bytes(100), b"\x08\x08garbage" * 9])
    def test_a_file_that_is_no_model_of_this_framework(self, lab, content):
        lab.write("other.onnx", content)
        found = self.failure(lab, lab.model(source={"graph_path": "other.onnx"}), dataset=lab.photos())
        assert (found.code, found.stage) == ("model_format", "load")
        assert "other.onnx" in found.message

    def test_a_pipeline_of_another_shape(self, lab):
        found = self.failure(lab, lab.model(size=16), dataset=lab.photos())
        assert (found.code, found.stage) == ("shape_mismatch", "warmup")
        assert found.fields["got"] == [1, 3, 16, 16]

    def test_a_layer_that_the_model_does_not_have(self, lab):
        inputs = [{"type": "tensor", "layer_name": "picture", "element_type": "float32"}]
        found = self.failure(lab, lab.model(inputs=inputs), dataset=lab.photos())
        assert (found.code, found.stage) == ("predictor_failed", "load")
        assert "image" in found.hint

    def test_a_fixed_batch(self, lab, fixed_batch_onnx):
        lab.write("fixed.onnx", fixed_batch_onnx)
        model, photos = lab.model(source={"graph_path": "fixed.onnx"}), lab.photos()
        found = self.failure(lab, model, dataset=photos, scenario={"type": "batched", "batch_size": 4})
        assert (found.code, found.fields["expected"], found.fields["got"]) == ("batch_unsupported", 1, 4)
        assert lab.evaluate(model, dataset=photos).accuracy.top1.value == pytest.approx(5 / 6)

    def test_a_checksum_that_does_not_fit_shows_both_digests(self, lab):
        wrong = "0" * 64
        model = lab.model(source={"graph_path": "colours.onnx", "checksum": {"sha256": wrong}})
        found = self.failure(lab, model, dataset=lab.photos())
        assert (found.code, found.stage) == (DigestError.code, "provision")
        assert wrong in found.message
        assert sha256(lab.root / "colours.onnx") in found.message

    def test_labels_that_do_not_fit_the_classes(self, lab):
        model, photos = lab.model(), lab.photos()
        lab.write("labels.txt", "red\ngreen\n")
        assert self.failure(lab, model, dataset=photos).code == "step_failed"

    def test_more_samples_than_there_are(self, lab):
        found = self.failure(lab, lab.model(), dataset=lab.photos(), samples=7)
        assert found.fields == {"samples": 7, "available": 6}

    def test_an_option_that_the_framework_does_not_have(self, lab):
        found = self.failure(lab, lab.model(), dataset=lab.photos(), options={"speed": "high"})
        assert "speed" in found.message


def test_two_evaluations_at_once_are_both_stored(lab):
    model, photos = lab.model(), lab.photos()
    arguments = ("evaluate", model, "-d", photos, "--launches", "1", "--duration", "0.5", "--json")
    with ThreadPoolExecutor(2) as pool:
        finished = list(pool.map(lambda _: lab.run(*arguments), range(2)))
    assert [item.code for item in finished] == [0, 0]
    ids = {item.json["id"] for item in finished}
    assert len(ids) == 2
    assert {record.id for record in lab.records()} == ids
    assert all(record.status == "succeeded" for record in lab.records())


def test_an_added_manifest_finds_its_files(lab):
    """Relative paths of an added manifest start from where the manifest lay."""
    model = lab.model()
    with lab.workspace() as workspace:
        workspace.catalogue.add(Path(model), "model")
    Path(model).unlink()
    record = lab.evaluate("Colours@1", dataset=lab.photos())
    assert record.status == "succeeded"
    with lab.workspace() as workspace:
        workspace.catalogue.remove("colours", "model")
        _, reproduction = workspace.reproduce(record.id)
    assert reproduction.accuracy == "same answers"
