"""A home of its own with a tiny model and photos whose right answers are known, and the command line to use them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlmodelscope.core.record import Record
from mlmodelscope.library import Workspace, make_request

COMMAND = Path(sys.executable).with_name("mlmodelscope")
# the class of a photo is its strongest channel; one file lies in the wrong folder, so 5 of 6 answers are right
PHOTOS = {
    "0-red/bright.png": (250, 10, 10),
    "0-red/dark.png": (90, 20, 10),
    "1-green/bright.png": (10, 250, 10),
    "1-green/misplaced.png": (200, 30, 20),
    "2-blue/bright.png": (10, 10, 250),
    "2-blue/dark.png": (20, 10, 90),
}
QUICK = {"launches": 1, "min_duration_ns": 0, "min_queries": 4, "warmup_queries": 1}


@dataclass(frozen=True)
class Finished:
    """A command line that ended: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Lab:
    """One folder with a home, manifests and files. `model` and `photos` write manifests and give back their paths."""

    def __init__(self, root: Path, colours_onnx: bytes) -> None:
        self.root = root
        self.home = root / "home"
        self.colours_onnx = colours_onnx

    def write(self, name: str, content: bytes | str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def model(self, name: str = "colours", *, color_layout: str = "RGB", size: int = 8, **changes: Any) -> str:
        """The manifest of the tiny model; `changes` replace its fields, None removes one."""
        if not (self.root / "colours.onnx").exists():
            self.write("colours.onnx", self.colours_onnx)
            self.write("labels.txt", "red\ngreen\nblue\n")
        steps: list[Any] = [
            {"decode": {"color_layout": color_layout}},
            {"resize": {"size": [size, size], "method": "nearest"}},
            {"cast": "float32"},
            {"rescale": 255},
            {"layout": "CHW"},
        ]
        values: dict[str, Any] = {
            "name": name,
            "version": "1.0.0",
            "task": "image_classification",
            "license": "CC0-1.0",
            "framework": {"name": "onnxruntime", "version": ">=1.17 <2"},
            "inputs": [{"type": "image", "layer_name": "image", "element_type": "float32", "steps": steps}],
            "outputs": [
                {
                    "type": "probability",
                    "layer_name": "scores",
                    "element_type": "float32",
                    "features_url": "labels.txt",
                    "steps": [{"softmax": {}}, {"topk": {"k": 2}}],
                }
            ],
            "source": {"graph_path": "colours.onnx"},
            **changes,
        }
        kept = {key: value for key, value in values.items() if value is not None}
        return str(self.write(f"{name}.yml", yaml.safe_dump(kept, sort_keys=False)))

    def function(self, name: str, source: str) -> str:
        """A model of the null framework whose samples go through `source`, the body of a preprocess function."""
        lines = ["def fun(env, data):", "    import numpy", *(f"    {line}" for line in source.strip().splitlines())]
        text = "\n".join([*lines, "    return numpy.zeros(3, dtype=numpy.float32)"]) + "\n"
        changes: dict[str, Any] = {"preprocess": text, "source": None, "framework": {"name": "null"}}
        inputs = [{"type": "tensor", "element_type": "float32"}]
        outputs = [{"type": "tensor", "element_type": "float32"}]
        return self.model(name, inputs=inputs, outputs=outputs, **changes)

    def photos(self, name: str = "photos", colours: dict[str, tuple[int, int, int]] | None = None) -> str:
        from PIL import Image

        for file, colour in (PHOTOS if colours is None else colours).items():
            path = self.root / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (12, 10), colour).save(path)
        layout = {"type": "folder_per_class", "path": f"{name}/"}
        values = {"kind": "dataset", "name": name, "version": "1.0.0", "split": "test", "layout": layout}
        return str(self.write(f"{name}.yml", yaml.safe_dump(values)))

    def noise(self, count: int = 4) -> str:
        """Images without labels, made on demand: for tests in which only the worker matters."""
        layout = {"type": "synthetic", "count": count, "size": [8, 8]}
        values = {"kind": "dataset", "name": "noise", "version": "1.0.0", "layout": layout}
        return str(self.write("noise.yml", yaml.safe_dump(values)))

    @contextmanager
    def workspace(self) -> Iterator[Workspace]:
        with Workspace(self.home) as workspace:
            yield workspace

    def evaluate(self, model: str, *, scenario: dict[str, Any] | None = None, **fields: Any) -> Record:
        """Through the library; small by default. The record must be in the store as it was returned."""
        request = make_request(
            models=(model,), scenario={"type": "single_stream", **QUICK, **(scenario or {})}, **fields
        )
        with self.workspace() as workspace:
            (record,) = workspace.evaluate(request)
            assert workspace.get(record.id) == record
        return record

    def records(self) -> list[Record]:
        """Every stored record, oldest first."""
        with self.workspace() as workspace:
            return [workspace.get(row.id) for row in reversed(workspace.history(limit=1000).rows)]

    def environment(self, **variables: str) -> dict[str, str]:
        return {**os.environ, "MLMODELSCOPE_HOME": str(self.home), **variables}

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([str(COMMAND), *arguments], env=self.environment(), **{**pipes, **options})

    def run(self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None, **variables: str) -> Finished:
        done = subprocess.run(
            [str(COMMAND), *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd or self.root,
            env=self.environment(**variables),
            timeout=600,
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err + out, err
        return Finished(done.returncode, out, err)

    def processes(self) -> list[int]:
        """Every living process that was started for this home: commands, workers, guardians and their children."""
        # commands and workers have it as MLMODELSCOPE_HOME, workers in the sandbox below it as HOME
        mark = f"HOME={self.home}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # it ended, or is not ours
                continue
        return found

    def wait_until_all_gone(self) -> None:
        _wait_for(lambda: not self.processes(), "no process of this home")


def _wait_for(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for: {what}"
        time.sleep(0.05)


@pytest.fixture
def wait_for() -> Callable[..., None]:
    """Sleeps until a condition holds; fails after two minutes."""
    return _wait_for


@pytest.fixture(scope="session")
def colours_onnx() -> bytes:
    """Images [n, 3, 8, 8] -> the mean of each channel, times ten: the strongest colour wins."""
    return make_colours("n")


def make_colours(batch: str | int) -> bytes:
    from numpy import float32
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["means"]),
            helper.make_node("Mul", ["means", "ten"], ["scores"]),
        ],
        "colours",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, 3])],
        [numpy_helper.from_array(float32(10).reshape(1), "ten")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


@pytest.fixture(scope="session")
def fixed_batch_onnx() -> bytes:
    """The same model for one image at a time."""
    return make_colours(1)


@pytest.fixture(scope="session")
def make_lab(colours_onnx: bytes) -> Callable[[Path], Lab]:
    """A lab in a folder that several tests share."""
    return lambda root: Lab(root, colours_onnx)


@pytest.fixture
def lab(tmp_path: Path, make_lab: Callable[[Path], Lab]) -> Iterator[Lab]:
    """After every test, whatever it did: no process of this home is left, and no run folder."""
    lab = make_lab(tmp_path)
    yield lab
    lab.wait_until_all_gone()
    assert list(lab.home.glob("runs/*")) == []
