"""Suite files: what they ask for, and every mistake with its line and column, all at once."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import ManifestError, UnknownNameError
from mlmodelscope.core.request import Batched, Limits, Offline, SingleStream
from mlmodelscope.resolve.system import parse_requirements, parse_size
from mlmodelscope.suite.read import MOST_CASES, read_suite


def known(kind: str, *names: str):
    def check(text: str) -> None:
        if text.partition("@")[0].rpartition("/")[2] not in names:
            raise UnknownNameError(kind, text, names)

    return check


CHECKS = {
    "model": known("model", "A", "B", "own.yml"),
    "dataset": known("data set", "D", "E"),
    "framework": known("framework", "onnxruntime", "tflite"),
    "system": parse_requirements,
    "size": parse_size,
}


@pytest.fixture
def read(tmp_path):
    def read(text: str):
        path = tmp_path / "suite.yaml"
        path.write_text(text)
        return read_suite(path, CHECKS)

    return read


@pytest.fixture
def problems(read):
    def problems(text: str) -> list[tuple[int, int, str]]:
        with pytest.raises(ManifestError) as caught:
            read(text)
        return [(one["line"], one["column"], one["message"]) for one in caught.value.fields["problems"]]

    return problems


class TestMeaning:
    def test_the_smallest(self, read):
        suite = read("models: A\ndatasets: D\n")
        (request,) = suite.requests
        assert suite.name == "suite"
        assert (request.models, request.dataset, request.framework, request.threads) == (("A",), "D", None, None)
        assert request.scenario == SingleStream()

    def test_everything_is_multiplied(self, read):
        suite = read(
            "name: nightly\nmodels: [A, B]\nframeworks: [onnxruntime, 'tflite@>=2']\ndatasets: [D, E]\n"
            "threads: [1, 2]\nbatch_sizes: [1, 8]\n"
        )
        assert suite.name == "nightly"
        assert len({request.model_dump_json() for request in suite.requests}) == 32 == len(suite.requests)

    def test_one_model_on_one_set_in_one_scenario_is_measured_side_by_side(self, read):
        suite = read(
            "models: [A, B]\ndatasets: [D]\nthreads: [1, 2]\nbatch_sizes: [1, 8]\nscenarios: [batched, offline]\n"
        )
        shapes = [
            (group[0].models[0], {request.scenario.type for request in group}, len(group)) for group in suite.groups
        ]
        assert shapes == [("A", {"batched"}, 4), ("A", {"offline"}, 4), ("B", {"batched"}, 4), ("B", {"offline"}, 4)]

    def test_the_words_of_a_scenario(self, read):
        (request,) = read(
            "models: A\ndatasets: D\nscenarios:\n  type: single_stream\n  timed: inference\n  duration: 2.5\n"
            "  queries: 7\n  warmup: 0\n  launches: 3\n  performance_set: 5\n"
        ).requests
        assert request.scenario == SingleStream(
            timed="inference",
            min_duration_ns=2_500_000_000,
            min_queries=7,
            warmup_queries=0,
            launches=3,
            performance_set=5,
        )

    def test_offline_and_batched_take_the_batch_sizes_or_their_own(self, read):
        suite = read(
            "models: A\ndatasets: D\nbatch_sizes: [2, 4]\nscenarios:\n  - batched\n"
            "  - {type: offline, workers: 2, batch_sizes: 16}\n  - {type: single_stream}\n"
        )
        assert [request.scenario for request in suite.requests] == [
            Batched(batch_size=2),
            Batched(batch_size=4),
            Offline(batch_size=16, workers=2),
            SingleStream(),
        ]

    def test_what_all_have_in_common(self, read):
        (request,) = read(
            "models: A\ndatasets: D\nsamples: 9\nseed: 4\nmeasure: performance\noptions: {provider: x}\n"
            "system: memory>=1GB\nlimits: {sample_seconds: 5, run_seconds: 60, memory: 1GB}\n"
        ).requests
        assert (request.samples, request.seed, request.measure, request.options) == (
            9,
            4,
            "performance",
            {"provider": "x"},
        )
        assert request.limits == Limits(sample_seconds=5, run_seconds=60, memory_bytes=10**9)
        assert request.system == "memory>=1GB"

    def test_exclude_takes_combinations_out(self, read):
        suite = read(
            "models: [A, B]\ndatasets: D\nbatch_sizes: [1, 2]\nthreads: [1, 2]\n"
            "exclude:\n  - {model: A, batch_size: 2}\n  - {threads: 2}\n"
        )
        found = [(r.models[0], r.scenario.batch_size, r.threads) for r in suite.requests]
        assert found == [("A", 1, 1), ("B", 1, 1), ("B", 2, 1)]

    def test_paths_start_from_the_suite(self, read, tmp_path):
        (tmp_path / "photo.png").write_bytes(b"x")
        (request,) = read("models: ./own.yml\ninputs: [photo.png, 'https://host/b.png']\n").requests
        assert Path(request.models[0]) == tmp_path / "own.yml"
        assert request.inputs == (str(tmp_path / "photo.png"), "https://host/b.png")


class TestProblems:
    def test_all_at_once_where_they_stand(self, problems):
        found = problems(
            "models: [A, C]\nframeworks: onnxrt\ndatasets:\n  - D\n  - F\nthread: 2\nbatch_sizes: [0, 2]\n"
            "scenarios:\n  - {type: bached}\n  - {type: single_stream, launches: x, quieries: 3}\n"
        )
        places = [(line, column) for line, column, _ in found]
        assert places == [(1, 13), (2, 13), (5, 5), (6, 1), (7, 15), (9, 12), (10, 37), (10, 40)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("datasets: D\n", "models is missing"),
            ("models: A\n", "datasets or inputs is missing"),
            ("models: []\ndatasets: D\n", "names nothing"),
            ("models: [A, A]\ndatasets: D\n", "again"),
            ("models: A\ndatasets: D\nthreads: [1, 1]\n", "again"),
            ("models: A\ndatasets: D\ninputs: [x]\n", "not both"),
            ("models: A\ndatasets: D\nscenarios: batched\n", "needs batch_sizes"),
            ("models: A\ndatasets: D\nbatch_sizes: 2\nscenarios: single_stream\n", "no scenario here has batches"),
            ("models: A\ndatasets: D\nscenarios: {type: single_stream, batch_sizes: 2}\n", "one sample per query"),
            ("models: A\ndatasets: D\nscenarios: {type: offline, duration: 2}\n", "offline scenario has no duration"),
            ("models: A\ndatasets: D\nscenarios: {type: offline, timed: inference}\n", "timed"),
            ("models: A\ndatasets: D\nscenarios: {timed: inference}\n", "type is missing"),
            ("models: A\ndatasets: D\nmeasure: speed\n", "is not one of"),
            ("models: A\ndatasets: D\nseed: x\n", "whole number"),
            ("models: A\ndatasets: D\nlimits: {memory: much}\n", "not a size"),
            ("models: A\ndatasets: D\nlimits: {run_seconds: -1}\n", "above 0"),
            ("models: A\ndatasets: D\noptions: [x]\n", "expected a mapping"),
            ("models: A\ndatasets: D\nexclude: [{model: A}]\n", "leaves nothing"),
            ("models: A\ndatasets: D\nexclude: [{mode: A}]\n", "unknown key 'mode'"),
            ("models: A\ndatasets: D\nsystem: memory\n", ""),
            ("", "holds no suite"),
            ("models: [A\n", ""),
            ("- models\n", "mapping"),
        ],
    )
    def test_each(self, problems, text, message):
        assert any(message in found for _, _, found in problems(text))

    def test_a_slip_in_a_list_does_not_plan_forever(self, problems):
        numbers = ", ".join(map(str, range(1, 201)))
        ((_, _, message),) = problems(f"models: A\ndatasets: D\nthreads: [{numbers}]\nbatch_sizes: [{numbers}]\n")
        assert f"{MOST_CASES:,}" in message

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(ManifestError, match="No such file"):
            read_suite(tmp_path / "absent.yaml", CHECKS)


_WORDS = st.sampled_from(["models", "datasets", "A", "D", "scenarios", "type", "batched", "threads", "exclude", "seed"])
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | _WORDS | st.text(max_size=5)
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4), max_leaves=12
)
_KEYS = ("models", "datasets", "frameworks", "scenarios", "batch_sizes", "threads", "seed", "limits", "exclude")


@given(st.dictionaries(st.sampled_from(_KEYS), _TREES))
def test_whatever_is_written_is_read_or_refused(tmp_path_factory, tree):
    import yaml

    path = tmp_path_factory.mktemp("suite") / "suite.yaml"
    path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8")
    with suppress(ManifestError):
        assert read_suite(path, CHECKS).requests
