"""One trained network in every framework, on the same photos -> one table: same answers? how fast beside ONNX Runtime?

`make frameworks` runs this. Each framework lives in its own environment, reached as a worker reaches it. Latencies are
taken in interleaved rounds (every framework in turn, then again), one thread each, and shown as the median over rounds
of the ratio to ONNX Runtime in the same round. Tree ensembles have rows of their own: the reference is ONNX Runtime on
the same trees.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmodelscope.core.needs import model_assets
from mlmodelscope.core.plugins import predictors
from mlmodelscope.datasets.open import open_dataset
from mlmodelscope.library import Workspace
from mlmodelscope.process.pipeline import compile_pipeline
from mlmodelscope.worker.foreign import ForeignPredictor, open_foreign
from networks import resnet18, write_network
from stacks import EXPORTERS, HOME, TESTED, Tested, environment_of, exported, host_of

MODEL, DATASET, PHOTOS, ROUNDS, QUERIES = "ResNet18-CIFAR10", "cifar10-test", 100, 9, 8
REFERENCE = Tested("onnxruntime", "1.31.1", "onnx", "")
COLUMNS = (
    "framework",
    "version",
    "Python",
    "max abs difference",
    "top-1 agreement",
    "latency / ONNX Runtime",
    "precision",
    "library",
)


MODEL_OF_ALL_LAYERS: dict[str, Any] = {"inputs": [], "outputs": [], "threads": 1}
PAGE = """# One network in every framework

`make frameworks` prints this table and writes this page. The network is the zoo's ResNet18-CIFAR10, batch
normalisation folded, exported to every format by the scripts in `frameworks/export/`, each run in its framework's own
environment. The inputs are the first {photos} photos of `cifar10-test`. Differences are those of the raw outputs
(logits) to ONNX Runtime 1.31.1. Latencies are of one thread and one photo, medians of interleaved rounds ({rounds} of
them), as ratios within a round; they say how the frameworks compare on this one small network and machine, no more.
XGBoost and LightGBM run trees: their rows compare with ONNX Runtime on the same trees. TensorRT, which needs a GPU, has
no row.

{table}"""


@dataclass
class Row:
    """One framework: its process, what it said of itself, its answers and its medians per round."""

    tested: Tested
    python: str
    opened: ForeignPredictor
    facts: dict[str, Any]
    layout: str
    answers: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    medians_ns: list[float] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="frameworks with commas between them; ONNX Runtime is always there")
    parser.add_argument("--write", type=Path, help="also write the table to this Markdown file")
    given = parser.parse_args()
    chosen = [one for one in TESTED if one.has_network and _is_chosen(one, given.only)]
    trees = [tree_cells(one) for one in TESTED if not one.has_network and _is_chosen(one, given.only)]
    photos, network = prepare()
    with ExitStack() as stack:
        rows = [opened(one, network, stack) for one in [REFERENCE, *(one for one in chosen if one != REFERENCE)]]
        for row in rows:
            row.answers = np.concatenate([row.opened.predict([laid(photo, row.layout)])[0] for photo in photos])
        measure(rows, photos)
        table = [cells(row, rows[0]) for row in rows]
    text = markdown([*table, *trees])
    sys.stdout.write(text)
    if given.write:
        given.write.write_text(PAGE.format(table=text, photos=PHOTOS, rounds=ROUNDS))
    return 0


def _is_chosen(one: Tested, only: str | None) -> bool:
    return only is None or one == REFERENCE or one.framework in only.split(",")


def prepare() -> tuple[list[NDArray[np.float32]], Path]:
    """The first photos of the data set as the model wants them, and the folder of the network."""
    with Workspace(HOME) as workspace:
        model, dataset = workspace.catalogue.model(MODEL), workspace.catalogue.dataset(DATASET)
        paths = {
            role: workspace.assets.fetch(asset, base=Path(model.pinned.base)).path
            for role, asset in model_assets(model.manifest)
        }
        folder = HOME / "networks" / "resnet18"
        if not folder.exists():
            write_network(resnet18(paths["graph"]), folder)
        base = Path(dataset.pinned.base)
        opened_set = open_dataset(
            dataset.manifest, lambda asset: workspace.assets.fetch(asset, base=base).path, HOME / "cache"
        )
    pipeline = compile_pipeline(model.manifest, {}, scratch=HOME)
    decoded = (pipeline.decode(opened_set.get(position).data) for position in range(PHOTOS))
    return [pipeline.batch([pipeline.transform(one)])[0] for one in decoded], folder


def opened(tested: Tested, network: Path, stack: ExitStack) -> Row:
    files = exported(tested, network)
    predictor = open_foreign(host_of(tested), entry_point(tested.framework))
    stack.callback(predictor.close)
    facts = predictor.load(
        {
            "graph_path": files["graph_path"],
            "weights_path": files["weights_path"],
            "inputs": [],
            "outputs": [],
            "threads": 1,
            "options": files["options"],
        }
    )
    built = environment_of(tested.framework, tested.version)
    return Row(tested, built.stack.python, predictor, facts, files["layout"])


def entry_point(framework: str) -> str:
    found = predictors().get(framework)
    return f"{found.__module__}:{found.__qualname__}"


def laid(photo: NDArray[np.float32], layout: str) -> NDArray[np.float32]:
    return np.ascontiguousarray(photo.transpose(0, 2, 3, 1)) if layout == "NHWC" else photo


def measure(rows: Sequence[Row], photos: Sequence[NDArray[np.float32]]) -> None:
    progress = HOME / "progress"
    progress.write_bytes(bytes(8))
    for _ in range(ROUNDS):
        for row in rows:
            queries = [[laid(photo, row.layout)] for photo in photos[:QUERIES]]
            begins, ends = row.opened.inference_loop(queries, 0, QUERIES, progress)
            row.medians_ns.append(median(end - begin for begin, end in zip(begins, ends, strict=True)))


def cells(row: Row, reference: Row) -> tuple[str, ...]:
    apart = np.abs(row.answers.reshape(reference.answers.shape) - reference.answers).max()
    same = (row.answers.reshape(reference.answers.shape).argmax(1) == reference.answers.argmax(1)).mean()
    ratio = median(mine / theirs for mine, theirs in zip(row.medians_ns, reference.medians_ns, strict=True))
    return (
        row.tested.framework,
        row.facts["version"],
        row.python,
        f"{apart:.1e}",
        f"{100 * same:.0f} %",
        f"{ratio:.2f}",
        row.facts["precision"],
        row.facts["library"],
    )


def tree_cells(tested: Tested) -> tuple[str, ...]:
    """A tree ensemble in its own framework against the same trees as ONNX; no ratio: other models, other inputs."""
    import onnxruntime

    files = exported(tested, None)
    said = np.load(Path(files["graph_path"]).parent / "answers.npz")
    rows = said["inputs"]
    model = {
        **MODEL_OF_ALL_LAYERS,
        "graph_path": files["graph_path"],
        "weights_path": None,
        "options": files["options"],
    }
    predictor = open_foreign(host_of(tested), entry_point(tested.framework))
    try:
        facts = predictor.load({**model, "outputs": [{"layer_name": "probability"}]})
        mine = predictor.predict([rows])[0]
    finally:
        predictor.close()
    folder = Path(files["graph_path"]).parent
    command = [sys.executable, str(EXPORTERS / "trees_onnx.py"), str(folder), str(folder / "onnx")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    session = onnxruntime.InferenceSession(folder / "onnx" / "trees.onnx")
    theirs = session.run(["probability"], {session.get_inputs()[0].name: rows.astype(np.float32)})[0]
    built = environment_of(tested.framework, tested.version)
    return (
        tested.framework,
        facts["version"],
        built.stack.python,
        f"{np.abs(mine - theirs).max():.1e}",
        f"{100 * (mine.argmax(1) == theirs.argmax(1)).mean():.0f} %",
        "-",
        facts["precision"],
        facts["library"],
    )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [COLUMNS, *rows]) for i in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [COLUMNS, *rows]
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
