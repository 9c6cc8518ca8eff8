"""Stored evaluations of a tiny real model: compared, reproduced and found again."""

from pathlib import Path

import pytest

from mlmodelscope.core.factors import FactorGroup
from mlmodelscope.core.store import HistoryQuery, parse_moment


class TestComparison:
    def compare(self, lab, left, right):
        with lab.workspace() as workspace:
            (comparison,) = workspace.compare([left.id, right.id])
        return comparison

    def test_one_step_changed_is_a_fair_comparison_of_the_pipeline(self, lab):
        photos = lab.photos()
        left = lab.evaluate(lab.model(), dataset=photos)
        right = lab.evaluate(lab.model("swapped", color_layout="BGR"), dataset=photos)
        found = self.compare(lab, left, right)
        assert (found.kind, found.groups) == ("fair", (FactorGroup.PIPELINE,))
        assert [difference.fact.split()[:2] for difference in found.differences] == [["step", "1"]]
        assert (found.common_samples, found.flipped) == (6, 5)
        assert right.accuracy.top1.value == pytest.approx(1 / 6)

    def test_two_groups_are_not_fair(self, lab):
        model, photos = lab.model(), lab.photos()
        left = lab.evaluate(model, dataset=photos, threads=1)
        right = lab.evaluate(model, dataset=photos, threads=2, seed=1)
        found = self.compare(lab, left, right)
        assert found.kind == "unfair"
        assert FactorGroup.EXECUTION in found.groups
        assert FactorGroup.SCENARIO in found.groups

    def test_other_weights_are_another_model(self, lab, fixed_batch_onnx):
        photos = lab.photos()
        lab.write("fixed.onnx", fixed_batch_onnx)
        left = lab.evaluate(lab.model(), dataset=photos)
        right = lab.evaluate(lab.model(source={"graph_path": "fixed.onnx"}), dataset=photos)
        assert FactorGroup.MODEL in self.compare(lab, left, right).groups

    def test_a_repetition_differs_in_nothing(self, lab):
        model, photos = lab.model(), lab.photos()
        records = [lab.evaluate(model, dataset=photos) for _ in range(2)]
        found = self.compare(lab, *records)
        assert (found.kind, found.differences, found.flipped) == ("repetition", (), 0)
        # one launch each: there is a ratio, but nothing to judge it by
        assert found.latency_ratio is None or found.latency_ratio.interval is None

    def test_a_failed_evaluation_compares_as_unknown(self, lab):
        photos = lab.photos()
        left = lab.evaluate(lab.model(), dataset=photos)
        right = lab.evaluate(lab.model(source={"graph_path": "absent.onnx"}), dataset=photos)
        found = self.compare(lab, left, right)
        assert (found.kind, found.latency_ratio, found.flipped) == ("unfair", None, None)

    def test_the_timed_regions_are_never_mixed(self, lab):
        model, photos = lab.model(), lab.photos()
        left = lab.evaluate(model, dataset=photos)
        right = lab.evaluate(model, dataset=photos, scenario={"timed": "inference"})
        found = self.compare(lab, left, right)
        assert (found.latency_ratio, found.latency_note) == (None, "the timed regions differ")


class TestReproduction:
    def test_gives_the_same_answers_from_the_record_alone(self, lab):
        model, photos = lab.model(), lab.photos()
        original = lab.evaluate(model, dataset=photos, seed=5, samples=4)
        Path(model).unlink()
        Path(photos).unlink()
        with lab.workspace() as workspace:
            record, reproduction = workspace.reproduce(original.id)
        assert record.id != original.id
        assert record.dataset.sample_ids_digest == original.dataset.sample_ids_digest
        assert reproduction.accuracy == "same answers"
        assert reproduction.speed == "cannot tell"
        assert reproduction.comparison.kind == "repetition"

    def test_names_the_factor_that_changed(self, lab):
        model, photos = lab.model(), lab.photos()
        original = lab.evaluate(model, dataset=photos)
        lab.write("labels.txt", "rouge\nvert\nbleu\n")
        with lab.workspace() as workspace:
            _, reproduction = workspace.reproduce(original.id)
        assert [(item.group, item.fact) for item in reproduction.comparison.differences] == [
            (FactorGroup.PIPELINE, "labels")
        ]
        assert reproduction.comparison.kind == "fair"

    def test_says_so_when_answers_change(self, lab):
        model, photos = lab.model(), lab.photos()
        original = lab.evaluate(model, dataset=photos)
        lab.photos(colours=dict.fromkeys(("0-red/bright.png", "0-red/dark.png"), (0, 0, 255)))
        with lab.workspace() as workspace:
            _, reproduction = workspace.reproduce(original.id)
        assert reproduction.accuracy != "same answers"
        assert reproduction.comparison.flipped == 2
        assert reproduction.comparison.groups == (FactorGroup.DATA,)

    def test_a_failure_gives_no_verdict(self, lab):
        model, photos = lab.model(), lab.photos()
        original = lab.evaluate(model, dataset=photos)
        (lab.root / "colours.onnx").unlink()
        with lab.workspace() as workspace:
            record, reproduction = workspace.reproduce(original.id)
        assert (record.status, reproduction) == ("failed", None)


class TestHistory:
    @pytest.fixture
    def filled(self, lab):
        photos = lab.photos()
        records = {
            "old": lab.evaluate(lab.model(version="1.2.0"), dataset=photos, measure="performance"),
            "new": lab.evaluate(lab.model(version="2.0.0"), dataset=photos, measure="performance"),
            "null": lab.evaluate(lab.function("nothing", "pass"), dataset=lab.noise(), measure="performance"),
            "failed": lab.evaluate(lab.function("evil", "raise ValueError"), dataset=lab.noise()),
        }
        return lab, {record.id: name for name, record in records.items()}, records

    def test_filters(self, filled):
        lab, names, records = filled
        system = records["new"].system
        middle = parse_moment(records["null"].created_at)

        def found(**fields) -> list[str]:
            with lab.workspace() as workspace:
                return [names[row.id] for row in workspace.history(HistoryQuery(**fields)).rows]

        assert found() == ["failed", "null", "new", "old"]
        assert found(model="COLOURS") == ["new", "old"]
        assert found(model="colours", model_version="^1.0") == ["old"]
        assert found(model="colours", model_version=">=1.2 <3") == ["new", "old"]
        assert found(framework="onnxruntime", framework_version=">=1.17 <2") == ["new", "old"]
        assert found(framework="onnxruntime", framework_version=">=99") == []
        assert found(framework="null") == ["failed", "null"]
        assert found(dataset="noise") == ["failed", "null"]
        assert found(status="failed") == ["failed"]
        assert found(architecture=system.architecture, status="succeeded") == ["null", "new", "old"]
        assert found(cpu=(system.cpu_model or "")[:3] or None, model="colours") == ["new", "old"]
        assert found(cpu="no such processor") == []
        assert found(scenario="batched") == []
        assert set(found(since=middle)) | set(found(until=middle)) == {"old", "new", "null", "failed"}
        assert "old" in found(until=middle)
        assert "failed" in found(since=middle)
        assert "old" not in found(since=middle)
