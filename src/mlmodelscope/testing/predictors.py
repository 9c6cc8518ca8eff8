"""Turns a predictor and a small model into a verdict: the contract that every predictor keeps, as pytest classes.

Subclass `PredictorContract`, set `framework` to the registered name, and define a fixture `case`:

    class TestMine(PredictorContract):
        framework = "mine"

        @pytest.fixture
        def case(self, tmp_path):
            return PredictorCase(...)

`LifecycleContract` is the part that also holds for a predictor without a model (`null`). A predictor with the ability
`Profiles` also keeps `ProfilesContract`, one with `Reveals` also `RevealsContract`: subclass them too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from mlmodelscope.core.plugins import installed_version, predictors
from mlmodelscope.core.predictor import Predictor, Profiles, Reveals
from mlmodelscope.predictors.port import CODES, PredictorFault

__all__ = ["LifecycleContract", "PredictorCase", "PredictorContract", "ProfilesContract", "RevealsContract"]

Array = NDArray[Any]


@dataclass(frozen=True)
class PredictorCase:
    """Small files of one framework, and what they compute.

    `open_batch` is a model with two or more differing outputs and a batch dimension of any size; `fixed_batch` the same
    model with the batch size fixed to 1; `corrupt` a file that is no model. `samples` are two or more different lists
    of input arrays, each of batch size 1 and two or more dimensions; `expected` the outputs for each sample, all layers
    in the model's own order. `profiled` is a model for the profile, where the framework cannot profile `open_batch`.
    """

    open_batch: str
    fixed_batch: str
    corrupt: str
    samples: Sequence[Sequence[Array]]
    expected: Sequence[Sequence[Array]]
    tolerance: float = 1e-5
    profiled: str = ""


class LifecycleContract:
    """What holds for every predictor: complete facts, results that last, an end that can be repeated."""

    framework: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _environment(self, predictor_class: type[Predictor], monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in predictor_class.environment.items():
            monkeypatch.setenv(name, value)

    @pytest.fixture
    def predictor_class(self) -> type[Predictor]:
        found: type[Predictor] = predictors().get(self.framework)
        return found

    @pytest.fixture
    def predictor(self, predictor_class: type[Predictor]) -> Iterator[Predictor]:
        predictor = predictor_class()
        yield predictor
        predictor.unload()

    def model(self, path: str, **changes: Any) -> dict[str, Any]:
        """What `load` takes for the file, all layers in the model's order, one thread."""
        layers: dict[str, Any] = {"graph_path": path, "weights_path": None, "inputs": [], "outputs": []}
        return {**layers, "threads": 1, "options": {}, **changes}

    def test_is_registered_under_its_own_name(self, predictor_class: type[Predictor]) -> None:
        assert predictor_class.name == predictors().canonical(self.framework)
        assert all(ending.startswith(".") for ending in predictor_class.formats)
        assert all(isinstance(value, str) for value in predictor_class.environment.values())

    def test_facts_are_complete_and_plain(self, predictor: Predictor, case: PredictorCase) -> None:
        facts = predictor.load(self.model(case.open_batch))
        assert json.loads(json.dumps(facts)) == facts
        assert facts["framework"] == predictor.name
        assert facts["threads"] == 1
        for name in ("version", "provider", "device", "library", "optimization", "precision"):
            assert isinstance(facts[name], str)
            assert facts[name]
        assert len(facts["outputs"]) == len(case.expected[0])
        for layer in facts["inputs"] + facts["outputs"]:
            assert layer["name"]
            assert np.dtype(layer["element_type"])
            assert all(size is None or size >= 1 for size in layer["shape"])

    def test_version_is_the_installed_one(self, predictor: Predictor, case: PredictorCase) -> None:
        installed = installed_version(type(predictor))
        facts = predictor.load(self.model(case.open_batch))
        assert facts["version"] == (installed[1] if installed else facts["version"])

    @pytest.mark.parametrize("threads", [1, 2])
    def test_threads_are_honoured(self, predictor: Predictor, case: PredictorCase, threads: int) -> None:
        assert predictor.load(self.model(case.open_batch, threads=threads))["threads"] == threads

    def test_impossible_threads_are_refused(self, predictor: Predictor, case: PredictorCase) -> None:
        _refused(lambda: predictor.load(self.model(case.open_batch, threads=0)), "predictor_failed")

    def test_an_unknown_option_is_refused(self, predictor: Predictor, case: PredictorCase) -> None:
        fault = _refused(lambda: predictor.load(self.model(case.open_batch, options={"nonsense": 1})))
        assert "nonsense" in fault.message

    def test_predicts_what_is_expected(self, predictor: Predictor, case: PredictorCase) -> None:
        predictor.load(self.model(case.open_batch))
        for sample, expected in zip(case.samples, case.expected, strict=True):
            _same(predictor.predict(list(sample)), expected, case)

    def test_results_outlive_later_calls(self, predictor: Predictor, case: PredictorCase) -> None:
        predictor.load(self.model(case.open_batch))
        results = [predictor.predict(list(sample)) for sample in case.samples]
        predictor.unload()
        for result, expected in zip(results, case.expected, strict=True):
            _same(result, expected, case)

    def test_inputs_are_left_alone(self, predictor: Predictor, case: PredictorCase) -> None:
        predictor.load(self.model(case.open_batch))
        given = [array.copy() for array in case.samples[0]]
        predictor.predict(given)
        for array, before in zip(given, case.samples[0], strict=True):
            np.testing.assert_array_equal(array, before)

    def test_unload_can_be_repeated(self, predictor: Predictor, case: PredictorCase) -> None:
        predictor.unload()
        predictor.load(self.model(case.open_batch))
        predictor.unload()
        predictor.unload()

    def test_predict_without_a_model_is_a_fault(self, predictor: Predictor, case: PredictorCase) -> None:
        _refused(lambda: predictor.predict(list(case.samples[0])), "predictor_failed")
        predictor.load(self.model(case.open_batch))
        predictor.unload()
        _refused(lambda: predictor.predict(list(case.samples[0])), "predictor_failed")

    def test_loads_again_and_beside_another(
        self, predictor: Predictor, predictor_class: type[Predictor], case: PredictorCase
    ) -> None:
        other = predictor_class()
        predictor.load(self.model(case.open_batch))
        other.load(self.model(case.open_batch))
        predictor.load(self.model(case.open_batch))
        _same(other.predict(list(case.samples[1])), case.expected[1], case)
        other.unload()
        _same(predictor.predict(list(case.samples[0])), case.expected[0], case)


class PredictorContract(LifecycleContract):
    """What also holds for every predictor that runs a model: batches, layers, and faults that say what was wrong."""

    def test_a_batch_equals_its_singles(self, predictor: Predictor, case: PredictorCase) -> None:
        predictor.load(self.model(case.open_batch))
        _same(predictor.predict(_stacked(case.samples)), _stacked(case.expected), case)
        _same(predictor.predict(list(case.samples[0])), case.expected[0], case)

    def test_any_memory_order_is_read(self, predictor: Predictor, case: PredictorCase) -> None:
        predictor.load(self.model(case.open_batch))
        given = [np.asfortranarray(array) for array in _stacked(case.samples)]
        _same(predictor.predict(given), _stacked(case.expected), case)

    def test_layers_are_selected(self, predictor: Predictor, case: PredictorCase) -> None:
        facts = predictor.load(self.model(case.open_batch))
        inputs = [{"layer_name": layer["name"], "element_type": layer["element_type"]} for layer in facts["inputs"]]
        last = len(facts["outputs"]) - 1
        by_name = [{"layer_name": facts["outputs"][index]["name"]} for index in (last, 0)]
        by_index = [{"layer_name": last}, {"layer_name": 0}]
        for outputs in (by_name, by_index):
            chosen = predictor.load(self.model(case.open_batch, inputs=inputs, outputs=outputs))
            assert [layer["name"] for layer in chosen["outputs"]] == [layer["layer_name"] for layer in by_name]
            _same(predictor.predict(list(case.samples[0])), [case.expected[0][last], case.expected[0][0]], case)
        predictor.load(self.model(case.open_batch, outputs=[{"layer_name": None}]))
        _same(predictor.predict(list(case.samples[0])), case.expected[0][:1], case)

    @pytest.mark.parametrize("side", ["inputs", "outputs"])
    @pytest.mark.parametrize("layer", ["no such layer", 99])
    def test_an_unknown_layer_lists_those_that_exist(
        self, predictor: Predictor, case: PredictorCase, side: str, layer: str | int
    ) -> None:
        names = [fact["name"] for fact in predictor.load(self.model(case.open_batch))[side]]
        changes = {side: [{"layer_name": layer, "element_type": None}]}
        fault = _refused(lambda: predictor.load(self.model(case.open_batch, **changes)), "predictor_failed")
        assert fault.fields["known"] == names
        assert all(name in str(fault.hint) for name in names)

    def test_a_wrong_announced_type_is_refused(self, predictor: Predictor, case: PredictorCase) -> None:
        announced = [{"layer_name": None, "element_type": "complex128"} for _ in case.samples[0]]
        fault = _refused(lambda: predictor.load(self.model(case.open_batch, inputs=announced)), "shape_mismatch")
        assert fault.fields["expected"] == str(case.samples[0][0].dtype)

    def test_a_fixed_batch_refuses_another(self, predictor: Predictor, case: PredictorCase) -> None:
        facts = predictor.load(self.model(case.fixed_batch))
        assert all(layer["shape"][0] == 1 for layer in facts["inputs"])
        fault = _refused(lambda: predictor.predict(_stacked(case.samples)), "batch_unsupported")
        assert (fault.fields["expected"], fault.fields["got"]) == (1, len(case.samples))
        _same(predictor.predict(list(case.samples[0])), case.expected[0], case)

    @pytest.mark.parametrize("change", ["type", "byte order", "size", "rank", "number", "list"])
    def test_inputs_that_do_not_fit_are_refused(self, predictor: Predictor, case: PredictorCase, change: str) -> None:
        predictor.load(self.model(case.open_batch))
        given = _misshapen(case.samples[0], change)
        # once before any good call and once after one: what has fitted may be taken for granted then
        for _ in range(2):
            fault = _refused(lambda: predictor.predict(given), "shape_mismatch")
            assert {"expected", "got"} <= set(fault.fields)
            _same(predictor.predict(list(case.samples[0])), case.expected[0], case)

    def test_a_corrupt_file_is_refused(self, predictor: Predictor, case: PredictorCase) -> None:
        _refused(lambda: predictor.load(self.model(case.corrupt)), "model_format")
        _refused(lambda: predictor.load(self.model(case.open_batch + ".absent")), "model_format")

    def test_a_failed_load_leaves_no_model(self, predictor: Predictor, case: PredictorCase) -> None:
        predictor.load(self.model(case.open_batch))
        _refused(lambda: predictor.load(self.model(case.corrupt)), "model_format")
        _refused(lambda: predictor.predict(list(case.samples[0])), "predictor_failed")


class ProfilesContract(LifecycleContract):
    """What holds for every predictor with the ability `Profiles`: layers per call, on our clock, and no trace after."""

    @pytest.fixture
    def profiler(self, predictor: Predictor, case: PredictorCase) -> Profiles:
        predictor.load(self.model(case.profiled or case.open_batch))
        assert isinstance(predictor, Profiles)
        return predictor

    def test_every_call_has_its_layers_inside_it(
        self, predictor: Predictor, profiler: Profiles, case: PredictorCase, tmp_path: Path
    ) -> None:
        profiler.start_profile(str(tmp_path))
        calls = []
        for sample in case.samples:
            begin = time.monotonic_ns()
            predictor.predict(list(sample))
            calls.append((begin, time.monotonic_ns()))
        profiles = profiler.stop_profile()
        assert len(profiles) == len(calls)
        for (begin, end), layers in zip(calls, profiles, strict=True):
            assert layers
            assert json.loads(json.dumps(layers)) == layers
            starts = [layer["start_ns"] for layer in layers]
            assert starts == sorted(starts)
            # a framework's clock may be as coarse as a microsecond
            assert starts[0] >= begin - 2000
            assert max(layer["start_ns"] + layer["duration_ns"] for layer in layers) <= end + 2000
            assert all(layer["name"] and layer["duration_ns"] >= 0 for layer in layers)

    def test_answers_are_the_same_while_profiled_and_afterwards(
        self, predictor: Predictor, profiler: Profiles, case: PredictorCase, tmp_path: Path
    ) -> None:
        profiler.start_profile(str(tmp_path))
        _same(predictor.predict(list(case.samples[0])), case.expected[0], case)
        profiler.stop_profile()
        _same(predictor.predict(list(case.samples[1])), case.expected[1], case)

    def test_a_profile_leaves_no_files(
        self, predictor: Predictor, profiler: Profiles, case: PredictorCase, tmp_path: Path
    ) -> None:
        folder = tmp_path / "scratch"
        folder.mkdir()
        profiler.start_profile(str(folder))
        predictor.predict(list(case.samples[0]))
        profiler.stop_profile()
        assert list(folder.iterdir()) == []

    def test_a_profile_can_be_taken_again(
        self, predictor: Predictor, profiler: Profiles, case: PredictorCase, tmp_path: Path
    ) -> None:
        for count in (1, 2):
            profiler.start_profile(str(tmp_path))
            for _ in range(count):
                predictor.predict(list(case.samples[0]))
            assert len(profiler.stop_profile()) == count
        assert list(profiler.stop_profile()) == []

    def test_a_profile_without_a_model_is_a_fault(self, predictor: Predictor, tmp_path: Path) -> None:
        assert isinstance(predictor, Profiles)
        start = predictor.start_profile
        _refused(lambda: start(str(tmp_path)), "predictor_failed")

    def test_unloading_ends_a_profile(
        self, predictor: Predictor, profiler: Profiles, case: PredictorCase, tmp_path: Path
    ) -> None:
        profiler.start_profile(str(tmp_path))
        predictor.unload()
        _refused(lambda: predictor.predict(list(case.samples[0])), "predictor_failed")
        assert list(profiler.stop_profile()) == []


class RevealsContract(LifecycleContract):
    """What holds for every predictor with the ability `Reveals`: layers by name, and no trace afterwards."""

    @pytest.fixture
    def revealer(self, predictor: Predictor, case: PredictorCase) -> Reveals:
        predictor.load(self.model(case.open_batch))
        assert isinstance(predictor, Reveals)
        return predictor

    def test_layers_have_names_and_outputs(self, revealer: Reveals, case: PredictorCase) -> None:
        names = revealer.layer_names()
        assert names
        assert len(set(names)) == len(names)
        for name, array in zip(names, revealer.reveal(list(case.samples[0]), names), strict=True):
            assert isinstance(array, np.ndarray), name

    def test_an_output_can_be_revealed_too(self, revealer: Reveals, case: PredictorCase) -> None:
        names = revealer.layer_names()
        shown = revealer.reveal(list(case.samples[0]), names)
        for expected in case.expected[0]:
            assert any(
                array.size == expected.size
                and np.allclose(array.reshape(-1), expected.reshape(-1), rtol=case.tolerance, atol=case.tolerance)
                for array in shown
            )

    def test_an_unknown_name_lists_those_that_exist(self, revealer: Reveals, case: PredictorCase) -> None:
        fault = _refused(lambda: revealer.reveal(list(case.samples[0]), ["no such layer"]), "predictor_failed")
        assert "no such layer" in fault.message

    def test_predictions_are_the_same_afterwards(
        self, predictor: Predictor, revealer: Reveals, case: PredictorCase
    ) -> None:
        revealer.reveal(list(case.samples[0]), revealer.layer_names()[:1])
        _same(predictor.predict(list(case.samples[1])), case.expected[1], case)


def _refused(call: Any, code: str | None = None) -> PredictorFault:
    with pytest.raises(PredictorFault) as caught:
        call()
    fault = caught.value
    assert fault.code == code if code else fault.code in CODES
    assert fault.message
    json.dumps(fault.fields)
    return fault


def _same(got: Sequence[Array], expected: Sequence[Array], case: PredictorCase) -> None:
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine, theirs, rtol=case.tolerance, atol=case.tolerance)


def _stacked(samples: Sequence[Sequence[Array]]) -> list[Array]:
    return [np.concatenate(arrays) for arrays in zip(*samples, strict=True)]


def _misshapen(sample: Sequence[Array], change: str) -> list[Any]:
    first = sample[0]
    if change == "byte order" and first.dtype.itemsize == 1:
        pytest.skip("one byte has no order")
    changed: dict[str, list[Any]] = {
        "type": [first.astype(np.float64 if first.dtype != np.float64 else np.float32)],
        "byte order": [first.astype(first.dtype.newbyteorder())],
        "size": [np.concatenate([first, first], axis=-1)],
        "rank": [first[..., np.newaxis]],
        "number": [first, first],
        "list": [first.tolist()],
    }
    return [*changed[change], *sample[1:]]
