"""Turns a job into its loaded model, pipeline and data set, and these into time stamps, answers, spans and layers.

The order of the stages, and what a failure becomes, is `worker.main`'s business. Modules that only some jobs need are
imported where they are used: every launch pays for its imports.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from mlmodelscope.core.errors import FunctionError, InputError, StepError, from_fields
from mlmodelscope.core.predictor import Reveals, Simulates
from mlmodelscope.core.request import Offline
from mlmodelscope.core.span import Clock
from mlmodelscope.predictors.port import PredictorFault

if TYPE_CHECKING:
    from mlmodelscope.core.record import Software
    from mlmodelscope.core.sample import Dataset, Sample
    from mlmodelscope.measure.loops import PipelineQuery
    from mlmodelscope.measure.offline import OfflineQuery
    from mlmodelscope.process.functions import OpenFunctions
    from mlmodelscope.process.pipeline import Pipeline
    from mlmodelscope.worker.foreign import ForeignPredictor
    from mlmodelscope.worker.job import Job

__all__ = ["Session"]

_LET_GO_SECONDS = 5.0


class Session:
    """Pipeline, predictor and data set of one launch."""

    def __init__(self, job: Job, progress: memoryview) -> None:
        from mlmodelscope.worker import shim

        self._job = job
        self._progress = progress
        self._shim = shim
        self._predictor: Any = None
        self._foreign: ForeignPredictor | None = None
        self._clock: Callable[[], int] = time.monotonic_ns
        self.clock_name: Clock = "monotonic"
        self.load_ns = 0
        self.first_inference_ns: int | None = None
        self.loaded_memory_bytes: int | None = None
        self.performance_set: list[str] = []
        self._prepared: list[list[Any]] = []

    def load(self) -> dict[str, Any]:
        from mlmodelscope.measure.memory import resident_bytes

        job = self._job
        self._predictor = self._open_predictor()
        start = time.monotonic_ns()
        with _faults():
            facts: dict[str, Any] = self._predictor.load(job.predictor_model())
        self.load_ns = self._foreign.load_ns if self._foreign else time.monotonic_ns() - start
        # behind an address is an engine, and the version is its own
        self._version = " ".join(str(facts[name]) for name in ("engine", "version") if name in facts)
        self.loaded_memory_bytes = self._foreign.loaded_memory_bytes if self._foreign else resident_bytes()
        # chosen once, before anything is timed: a simulator's own clock, or the monotonic one
        if isinstance(self._predictor, Simulates):
            self._clock, self.clock_name = self._predictor.now_ns, "simulated"
        self.pipeline: Pipeline = self._open_pipeline()
        self.dataset: Dataset = job.open_dataset()
        self.query: PipelineQuery = self._open_query()
        return facts

    def _open_predictor(self) -> Any:
        """The predictor in this process, or, for a framework that lives elsewhere, its stand-in."""
        if self._job.host is None:
            return self._shim.open_predictor(self._job.framework.entry_point)
        from mlmodelscope.worker.foreign import open_foreign

        with _faults():
            self._foreign = open_foreign(self._job.host, self._job.framework.entry_point)
        return self._foreign

    def _open_pipeline(self) -> Pipeline:
        from mlmodelscope.process.pipeline import compile_pipeline

        pipeline = compile_pipeline(
            self._job.model,
            self._job.read_labels(),
            scratch=Path(self._job.run_folder),
            open_functions=self._open_functions(),
        )
        cv2 = sys.modules.get("cv2")
        if cv2 is not None:
            # offline, every core has a thread of its own that prepares samples
            cv2.setNumThreads(1 if isinstance(self._job.scenario, Offline) else self._job.threads)
        return pipeline

    def _open_functions(self) -> OpenFunctions:
        """Where the manifest's functions run: what its requirements name is installed beside the framework only."""
        from mlmodelscope.process.functions import functions_here

        if self._foreign is not None and self._job.model.requirements:
            return self._foreign.open_functions
        return functions_here

    def _open_query(self) -> PipelineQuery:
        from mlmodelscope.measure.loops import PipelineQuery

        return PipelineQuery(self.pipeline, self._predictor.predict, self._clock)

    def prepare(self) -> None:
        """For `--timed inference`: the performance set as tensors, in the order in which it will be cycled."""
        job = self._job
        if job.scenario.timed != "inference" or not job.measures_performance:
            return
        positions = job.performance_positions(len(self.dataset))
        self.performance_set = [self.dataset.ids()[position] for position in positions]
        size = job.scenario.batch_size
        padded = positions + [positions[i % len(positions)] for i in range(-len(positions) % size)]
        for first in range(0, len(padded), size):
            samples = [self.dataset.get(position) for position in padded[first : first + size]]
            with _blaming(self.query, samples):
                tensors = [self.pipeline.transform(self.pipeline.decode(sample.data)) for sample in samples]
            self._prepared.append(self.pipeline.batch(tensors))
            self._progress[0] += 1
        random.Random(job.seed).shuffle(self._prepared)

    def warm_up(self) -> None:
        """The first inference is timed on its own; then the warm-up queries, of the same kind as the measured ones."""
        orders = self._orders()
        is_warmed = self._job.measures_performance or self._job.is_traced
        count = max(1, self._job.scenario.warmup_queries) if is_warmed else 1
        with _faults():
            for number in range(count):
                if self._prepared:
                    began = self._clock()
                    self._predictor.predict(self._prepared[number % len(self._prepared)])
                    predict_ns = self._clock() - began
                else:
                    samples = [self.dataset.get(position) for position in next(orders)]
                    with _blaming(self.query, samples):
                        times, _ = self.query(samples)
                    predict_ns = times[3] - times[2]
                if self.first_inference_ns is None:
                    self.first_inference_ns = predict_ns
                self._progress[0] += 1
        gc.collect()
        gc.freeze()

    def _orders(self) -> Iterator[list[int]]:
        """Positions per query, pass after pass over the data set, each pass shuffled by the seed."""
        generator = random.Random(self._job.seed)
        size = self._job.scenario.batch_size
        waiting: list[int] = []
        while True:
            positions = list(range(len(self.dataset)))
            generator.shuffle(positions)
            waiting += positions
            while len(waiting) >= size:
                yield waiting[:size]
                waiting = waiting[size:]

    def measure(self) -> dict[str, Any]:
        import numpy as np

        from mlmodelscope.measure.noise import NoiseWindow

        job = self._job
        if isinstance(job.scenario, Offline):
            return self._measure_offline(job.scenario)
        window = NoiseWindow()
        window.start()
        with _faults():
            stamps = self._timed_stamps()
        noise = window.stop()
        table = np.asarray(stamps, dtype=np.int64).reshape(-1, 2 if self._prepared else 5)
        np.save(Path(job.run_folder) / f"stamps-{job.index}.npy", table)
        return {
            "queries": len(table),
            "samples": len(table) * job.scenario.batch_size,
            "duration_ns": int(table[-1, -1] - table[0, 0]),
            "noise": noise.model_dump(mode="json"),
        }

    def _measure_offline(self, scenario: Offline) -> dict[str, Any]:
        """One query of all samples: a row of time stamps, and beside it the work on each sample in its thread."""
        import numpy as np

        from mlmodelscope.measure.noise import NoiseWindow

        folder, index = Path(self._job.run_folder), self._job.index
        query = self._open_offline(scenario)
        window = NoiseWindow()
        window.start()
        with _faults():
            times = query(self.dataset, scenario.batch_size, self._progress)
        noise = window.stop()
        np.save(folder / f"stamps-{index}.npy", np.asarray([times.stamps()], dtype=np.int64))
        np.save(folder / f"work-{index}.npy", np.asarray(times.work, dtype=np.int64).reshape(-1, 2))
        return {
            "queries": 1,
            "samples": len(self.dataset),
            "duration_ns": times.end_ns - times.start_ns,
            "noise": noise.model_dump(mode="json"),
        }

    def _open_offline(self, scenario: Offline) -> OfflineQuery:
        from mlmodelscope.measure.offline import OfflineQuery

        preparers = [self._open_pipeline() for _ in range(scenario.workers or self._job.threads)]
        return OfflineQuery(self.pipeline, preparers, self._predictor.predict, self._clock)

    def _timed_stamps(self) -> Any:
        from mlmodelscope.measure.loops import pipeline_loop

        job = self._job
        # simulated seconds are no measure of how long a user wants to wait: there the number of queries decides
        minima = (0 if self.clock_name == "simulated" else job.min_duration_ns, job.min_queries)
        if self._prepared:
            if self._foreign is not None:
                progress = Path(job.run_folder) / "progress"
                begins, ends = self._foreign.inference_loop(self._prepared, *minima, progress)
            else:
                begins, ends = self._shim.inference_loop(
                    self._predictor.predict, self._prepared, *minima, self._clock, self._progress
                )
            return list(zip(begins, ends, strict=True))
        return pipeline_loop(self.query, self.dataset, self._orders(), *minima, self._clock, self._progress)

    def trace(
        self, entered: list[tuple[str, int]], started_at: str, anchor_ns: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A few queries with all their spans, which go to a file; the facts of the launch and of the trace."""
        from mlmodelscope.measure.noise import NoiseWindow
        from mlmodelscope.worker.tracing import Tracer

        job = self._job
        tracer = Tracer(job, self._predictor, self.query, self.dataset, self._clock, self.clock_name)
        window = NoiseWindow()
        window.start()
        with _faults():
            tracer.record(self._orders(), self._progress)
        noise = window.stop()
        measured = {**tracer.measured(), "noise": noise.model_dump(mode="json")}
        return measured, tracer.write(entered, started_at, anchor_ns)

    def predict_all(self) -> None:
        """Every sample once through the measured code path; the answers go to a file, a line each."""
        from mlmodelscope.measure.loops import accuracy_pass

        self._progress[0] = 0
        scenario = self._job.scenario
        with (Path(self._job.run_folder) / "predictions.jsonl").open("w", encoding="utf-8") as file, _faults():

            def write(samples: Sequence[Sample], rows: Sequence[Any]) -> None:
                answers = self.pipeline.answers(rows, [sample.data for sample in samples])
                for sample, answer in zip(samples, answers, strict=True):
                    line = {"sample": sample.id, "label": sample.label, "answer": answer.model_dump(mode="json")}
                    file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")

            if isinstance(scenario, Offline):
                self._open_offline(scenario)(self.dataset, scenario.batch_size, self._progress, write)
                return
            for sample, row in accuracy_pass(self.query, self.dataset, scenario.batch_size, self._progress):
                write([sample], [row])

    def reveal(self, layers: Sequence[str]) -> None:
        """What the layers compute for each sample alone goes to a file; without layers, the names of all of them."""
        from mlmodelscope.worker.layers import ARRAYS_FILE, NAMES_FILE, checked_layers, write_arrays, write_names

        predictor, folder = self._predictor, Path(self._job.run_folder)
        assert isinstance(predictor, Reveals)
        with _faults():
            known = predictor.layer_names()
        if not layers:
            write_names(folder / NAMES_FILE, known)
            return
        names = checked_layers(layers, known)

        def arrays() -> Iterator[tuple[str, Any]]:
            for position in range(len(self.dataset)):
                sample = self.dataset.get(position)
                with _blaming(self.query, [sample]):
                    tensors = self.pipeline.prepare(sample.data)
                for name, array in zip(names, predictor.reveal(tensors, names), strict=True):
                    yield f"{sample.id}/{name}", array
                self._progress[0] += 1

        with (folder / ARRAYS_FILE).open("wb") as file, _faults():
            write_arrays(file, arrays())

    def peak_memory_bytes(self) -> int | None:
        from mlmodelscope.measure.memory import peak_resident_bytes

        return self._foreign.peak_memory_bytes() if self._foreign else peak_resident_bytes()

    def software(self) -> dict[str, Any]:
        from mlmodelscope.measure.software import read_software

        software = read_software(
            framework=self._job.framework.name,
            framework_version=self._version,
            distribution=self._job.framework.distribution,
            environment=self._job.environment,
        )
        if self._foreign is not None:
            software = software.model_copy(update=_elsewhere(software, self._foreign.software()))
        return software.model_dump(mode="json")

    def system(self) -> dict[str, Any]:
        from mlmodelscope.measure.system import read_system

        return read_system().model_dump(mode="json")

    def unload(self) -> None:
        with _faults():
            self._predictor.unload()
        if self._foreign is not None:
            self._foreign.close()

    def let_go(self) -> None:
        """After a failure at any point: a program behind an address is told that its model is wanted no more.

        It may be what failed, so it has a few seconds. A framework in this process is left alone: it ends with us, and
        unloading what is broken may break more.
        """
        if not getattr(self._predictor, "takes_address", False):
            return
        thread = Thread(target=self._unload_quietly, daemon=True)
        thread.start()
        thread.join(_LET_GO_SECONDS)

    def _unload_quietly(self) -> None:
        # the failure that brought us here is the one to be told
        with suppress(Exception):
            self._predictor.unload()


def _elsewhere(ours: Software, theirs: Mapping[str, Any]) -> dict[str, Any]:
    """What differs where the framework has an interpreter of its own; its variables are ours and those of its host."""
    from mlmodelscope.core.variables import recorded_variables

    return {
        "python": theirs["python"],
        "implementation": theirs["implementation"],
        "packages": theirs["packages"],
        "pipeline_packages": ours.packages,
        "variables": recorded_variables(theirs["variables"]),
    }


@contextmanager
def _faults() -> Iterator[None]:
    """Translates what the portable layer raises into our tree, once, here."""
    try:
        yield
    except PredictorFault as error:
        fields = {"code": error.code, "message": error.message, "hint": error.hint, "fields": error.fields}
        raise from_fields(fields) from error


@contextmanager
def _blaming(query: PipelineQuery, samples: list[Sample]) -> Iterator[None]:
    """Names the sample behind an error of the pipeline."""
    try:
        yield
    except (InputError, StepError, FunctionError) as error:
        raise query.blame(error, samples) from error
