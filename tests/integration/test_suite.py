"""Suites, sweeps, offline runs, regression checks, reuse and dry runs of a tiny real model, by the command line."""

import io
import json
import signal

import numpy as np
import pytest
import yaml

from mlmodelscope.library import make_request
from mlmodelscope.testing.records import example_record, example_software

FAST = {"launches": 2, "duration": 0, "queries": 4, "warmup": 1}
QUICK = ("--launches", "2", "--duration", "0", "--queries", "4", "--warmup", "1")


@pytest.fixture
def suite(lab):
    def write(**fields):
        values = {
            "models": [lab.model()],
            "datasets": [lab.photos()],
            "scenarios": [{"type": "single_stream", **FAST}],
            **fields,
        }
        return str(lab.write("suite.yaml", yaml.safe_dump(values)))

    return write


class TestOffline:
    def test_all_samples_once_per_launch_with_the_answers_of_any_other_scenario(self, lab):
        scenario = {"type": "offline", "launches": 2, "batch_size": 4, "workers": 2}
        model, photos = lab.model(), lab.photos()
        with lab.workspace() as workspace:
            (record,) = workspace.evaluate(make_request(models=(model,), dataset=photos, scenario=scenario))
        assert record.failure is None
        assert [(launch.queries, launch.samples) for launch in record.launches] == [(1, 6), (1, 6)]
        rates = [6e9 / launch.duration_ns for launch in record.launches]
        assert record.performance.throughput.value == pytest.approx(np.mean(rates))
        assert set(record.performance.parts_ns) == {
            "decode (a sample)", "transform (a sample)", "waiting for samples", "predict", "postprocess", "batching",
        }  # fmt: skip
        assert (record.scenario.workers, record.execution.batch_size) == (2, 4)
        plain = lab.evaluate(model, dataset=photos, measure="accuracy")
        assert record.accuracy == plain.accuracy
        assert record.artifact("predictions.jsonl.gz").sha256 == plain.artifact("predictions.jsonl.gz").sha256

    def test_the_number_of_threads_is_pinned(self, lab):
        scenario = {"type": "offline", "launches": 1}
        with lab.workspace() as workspace:
            (plan,) = workspace.plans(make_request(models=(lab.model(),), dataset=lab.photos(), scenario=scenario))
        assert plan.scenario.workers >= 1

    def test_a_photo_that_cannot_be_decoded_is_named(self, lab):
        photos = lab.photos()
        lab.write("photos/2-blue/dark.png", b"no image")
        done = lab.run("evaluate", lab.model(), "-d", photos, "--scenario", "offline", "--launches", "1", "--json")
        assert done.code == 1
        assert done.json["failure"]["code"] == "sample_invalid"
        assert done.json["failure"]["fields"]["sample"] == "2-blue/dark.png"

    @pytest.mark.parametrize(
        "options", [("--timed", "inference"), ("--duration", "3"), ("--queries", "9"), ("--performance-set", "4")]
    )
    def test_options_without_a_meaning_are_refused(self, lab, options):
        done = lab.run("evaluate", lab.model(), "-d", lab.photos(), "--scenario", "offline", *options)
        assert done.code == 2
        assert options[0] in done.err


class TestSweep:
    def test_one_record_per_size_side_by_side_and_the_optimum(self, lab):
        done = lab.run("evaluate", lab.model(), "-d", lab.photos(), "--batch-sizes", "1,2,4", *QUICK, "--json")
        assert done.code == 0, done.err
        records, (sweep,) = done.json["records"], done.json["sweeps"]
        assert [record["scenario"]["batch_size"] for record in records] == [1, 2, 4]
        assert [point["batch_size"] for point in sweep["points"]] == [1, 2, 4]
        assert sweep["optimal"] in (1, 2, 4)
        starts = [[launch["started_at"] for launch in record["launches"]] for record in records]
        assert np.ravel(starts, order="F").tolist() == sorted(np.ravel(starts))

    def test_a_table_for_people(self, lab):
        done = lab.run("evaluate", lab.model(), "-d", lab.photos(), "--batch-sizes", "2,1", *QUICK)
        assert "optimal batch size: " in done.out
        assert "samples/s" in done.out

    def test_sizes_that_fail_are_shown_and_do_not_count(self, lab, fixed_batch_onnx):
        model = lab.model()
        lab.write("colours.onnx", fixed_batch_onnx)
        done = lab.run("evaluate", model, "-d", lab.photos(), "--batch-sizes", "1,2", *QUICK)
        assert done.code == 1
        assert "failed: batch_unsupported" in done.out
        assert "optimal batch size: 1" in done.out

    @pytest.mark.parametrize("text", ["", "1", "0,2", "1,1", "1;2", "a,b", "-1,2"])
    def test_a_list_that_is_none(self, lab, text):
        done = lab.run("evaluate", lab.model(), "-d", lab.photos(), f"--batch-sizes={text}")
        assert done.code == 2


class TestSuite:
    def test_the_whole_product_and_one_table(self, lab, suite):
        path = suite(threads=[1, 2], batch_sizes=[1, 2], scenarios=[{"type": "batched", **FAST}])
        done = lab.run("run", path)
        assert done.code == 0, done.err
        assert "4 of 4 done, 0 failed, 0 of them by an earlier run" in done.out
        found = {(r.scenario.batch_size, r.execution.threads) for r in lab.records()}
        assert found == {(1, 1), (1, 2), (2, 1), (2, 2)}

    def test_what_is_finished_is_not_repeated(self, lab, suite):
        path = suite()
        first = lab.run("run", path, "--json").json
        again = lab.run("run", path, "--json").json
        assert [row["is_earlier"] for row in first + again] == [False, True]
        assert again[0]["record"] == first[0]["record"]
        assert len(lab.records()) == 1
        assert lab.run("run", path, "--fresh").code == 0
        assert len(lab.records()) == 2

    def test_more_of_a_suite_runs_only_what_is_new(self, lab, suite):
        lab.run("run", suite(threads=[1]))
        rows = lab.run("run", suite(threads=[1, 2]), "--json").json
        assert [row["is_earlier"] for row in rows] == [True, False]

    def test_a_changed_manifest_or_file_is_another_evaluation(self, lab, suite, fixed_batch_onnx):
        path = suite()
        lab.run("run", path)
        lab.write("colours.onnx", fixed_batch_onnx)
        assert [row["is_earlier"] for row in lab.run("run", path, "--json").json] == [False]
        lab.model(license="MIT")
        assert [row["is_earlier"] for row in lab.run("run", path, "--json").json] == [False]

    def test_a_killed_run_is_taken_up_again(self, lab, suite, wait_for):
        slow = {"type": "single_stream", "launches": 1, "duration": 600, "queries": 1}
        path = suite(scenarios=[{"type": "single_stream", **FAST}, slow])
        process = lab.start("run", path)
        wait_for(lambda: list(lab.home.glob("suites/*.json")) and lab.processes(), "the first evaluation is finished")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        lab.wait_until_all_gone()
        for folder in lab.home.glob("runs/*"):  # a killed process cannot; a later run sweeps them after an hour
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        assert len(lab.records()) == 1
        rows = lab.run("run", suite(scenarios=[{"type": "single_stream", **FAST}]), "--json").json
        assert [row["is_earlier"] for row in rows] == [True]

    def test_failed_ones_are_shown_and_tried_again(self, lab, suite, fixed_batch_onnx):
        path = suite(batch_sizes=[1, 2], scenarios=[{"type": "batched", **FAST}])
        lab.write("colours.onnx", fixed_batch_onnx)
        done = lab.run("run", path)
        assert done.code == 1
        assert "1 of 2 done, 1 failed" in done.out
        assert "batch_unsupported" in done.out
        again = lab.run("run", path, "--json")
        assert again.code == 1
        assert [row["is_earlier"] for row in again.json] == [True, False]

    def test_what_cannot_be_planned_is_a_row_too(self, lab, suite):
        done = lab.run("run", suite(frameworks=["onnxruntime@<1", "onnxruntime"]))
        assert done.code == 1
        assert "refused: unsatisfiable" in done.out
        assert "1 of 2 done, 1 failed" in done.out

    def test_every_mistake_is_told_with_its_place(self, lab, suite):
        done = lab.run("run", suite(models=["nobody"], thread=2))
        assert done.code == 2
        assert "suite.yaml:" in done.err
        assert "nobody" in done.err
        assert "thread" in done.err

    def test_the_list_runs_nothing(self, lab, suite):
        done = lab.run("run", suite(threads=[1, 2]), "--list")
        assert (done.code, len(done.out.splitlines())) == (0, 2)
        assert lab.records() == []


class TestCheck:
    def test_a_repetition_is_no_regression_of_accuracy(self, lab):
        one, two = (lab.evaluate(lab.model(), dataset=lab.photos(), scenario={"launches": 2}) for _ in range(2))
        done = lab.run("check", two.id, "--baseline", one.id, "--max-slowdown", "none", "--json")
        assert done.code == 0
        (finding,) = done.json["findings"]
        assert (finding["subject"], finding["outcome"]) == ("accuracy", "no regression")

    def stored(self, lab, milliseconds: float, **changes) -> str:
        """The id of a stored record whose launches have medians close round the given one."""
        tables = {f"launch_{i}": np.array([[0, int(milliseconds * 1e6) + 1000 * i]] * 9) for i in range(5)}
        content = io.BytesIO()
        np.savez(content, **tables)
        with lab.workspace() as workspace:
            artifact = workspace.store.put_artifact(content.getvalue(), "latencies.npz", "application/x-npz")
            return workspace.store.add(example_record(artifacts=(artifact,), **changes)).id

    def test_the_exit_code_is_one_only_for_a_proven_regression(self, lab):
        fast, slow = self.stored(lab, 10), self.stored(lab, 11)
        options = ("--max-accuracy-loss", "none")
        done = lab.run("check", slow, "--baseline", fast, *options)
        assert done.code == 1
        assert "speed: REGRESSION" in done.out
        assert lab.run("check", fast, "--baseline", slow, *options).code == 0
        assert lab.run("check", slow, "--baseline", fast, *options, "--max-slowdown", "12%").code == 0

    def test_what_differs_must_be_allowed(self, lab):
        software = example_software(framework_version="1.21.0")
        old, new = self.stored(lab, 10), self.stored(lab, 11, software=software)
        arguments = ("check", new, "--baseline", old, "--max-accuracy-loss", "none")
        refused = lab.run(*arguments)
        assert refused.code == 2
        assert "--allow framework" in refused.err
        assert lab.run(*arguments, "--allow", "framework").code == 1

    def test_a_limit_that_is_none(self, lab):
        for option in (("--max-slowdown", "5"), ("--max-slowdown", "-5%"), ("--max-accuracy-loss", "x")):
            done = lab.run("check", "a", "--baseline", "b", *option)
            assert done.code == 2
            assert option[0] in done.err


class TestReuse:
    def arguments(self, lab, *more: str) -> tuple[str, ...]:
        return ("evaluate", lab.model(), "-d", lab.photos(), *QUICK, "--json", *more)

    def test_only_if_the_user_says_so_and_it_says_from_where(self, lab):
        first = lab.run(*self.arguments(lab)).json
        assert lab.run(*self.arguments(lab)).json["id"] != first["id"]
        newest = lab.records()[-1].id
        done = lab.run(*self.arguments(lab, "--reuse"))
        assert (done.json["id"], done.json["is_reused"]) == (newest, True)
        assert f"answered by {newest} of 20" in done.err
        assert len(lab.records()) == 2

    @pytest.mark.parametrize(
        "more", [("--seed", "3"), ("--samples", "4"), ("--threads", "1"), ("--timed", "inference")]
    )
    def test_any_other_factor_is_run(self, lab, more):
        lab.run(*self.arguments(lab, "--threads", "2"))
        more = more if "--threads" in more else (*more, "--threads", "2")
        done = lab.run(*self.arguments(lab, "--reuse", *more))
        assert done.json["is_reused"] is False
        assert len(lab.records()) == 2

    def test_another_file_is_run(self, lab, fixed_batch_onnx):
        lab.run(*self.arguments(lab))
        lab.write("colours.onnx", fixed_batch_onnx)
        assert lab.run(*self.arguments(lab, "--reuse")).json["is_reused"] is False

    def test_a_failed_evaluation_never_answers(self, lab):
        photos = lab.photos()
        lab.write("photos/2-blue/dark.png", b"no image")
        for _ in range(2):
            done = lab.run("evaluate", lab.model(), "-d", photos, *QUICK, "--json", "--reuse")
            assert (done.code, done.json["is_reused"]) == (1, False)


class TestDryRun:
    def test_the_plan_and_nothing_else(self, lab):
        done = lab.run("evaluate", lab.model(), "-d", lab.photos(), "--dry-run", "--json")
        assert done.code == 0, done.err
        (forecast,) = done.json
        assert (forecast["launches"], forecast["least_seconds"]) == (5, 10.0)
        assert {asset["license"] for asset in forecast["assets"] if asset["owner"] == "model"} == {"CC0-1.0"}
        assert all(asset["is_present"] and asset["size_bytes"] for asset in forecast["assets"])
        assert lab.records() == []

    def test_a_download_is_named_and_not_made(self, lab):
        address = "http://127.0.0.1:9/colours.onnx"
        model = lab.model(source={"graph_path": address}, attributes={"size_bytes": 2_000_000})
        done = lab.run("evaluate", model, "-d", lab.photos(), "--dry-run")
        assert done.code == 0, done.err
        assert "to download: 1 files, 1.91 MiB" in done.out
        assert address in done.out
        assert json.loads(lab.run("history", "--json").out)["rows"] == []
