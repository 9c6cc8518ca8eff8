"""Every framework that is tested in an environment of its own, and the files its exporter makes there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mlmodelscope.core.plugins import predictors
from mlmodelscope.core.settings import child_environment, framework_variables
from mlmodelscope.core.stack import BuiltEnvironment
from mlmodelscope.core.versions import parse_constraint
from mlmodelscope.provision.environments import Environments
from mlmodelscope.provision.libraries import library_variables
from mlmodelscope.provision.portable import portable_folder
from mlmodelscope.resolve.stacks import need_of
from mlmodelscope.worker.job import FrameworkHost

ROOT = Path(__file__).resolve().parents[1]
EXPORTERS = ROOT / "frameworks" / "export"
# environments are large and good for every checkout of a user
HOME = Path(os.environ.get("MLMODELSCOPE_FRAMEWORKS", "~/.cache/mlmodelscope-frameworks")).expanduser()


@dataclass(frozen=True)
class Tested:
    """A framework at one version. `exporter` is the script that makes its files, `made_in` the framework in whose
    environment that script runs ("" is our own interpreter); `says` is the version that the framework itself tells;
    `threads_beside` is how many threads may wait for a processor beside those that compute, when told two or more."""

    framework: str
    version: str
    exporter: str
    made_in: str | None = None
    has_network: bool = True
    says: str | None = None
    profiles_fixed_only: bool = False
    threads_beside: int = 0
    __test__ = False

    @property
    def id(self) -> str:
        return f"{self.framework}-{self.version}"


TESTED = [
    Tested("caffe", "1.0.0.20210829", "caffe"),
    Tested("caffe2", "1.4.0", "caffe2"),
    Tested("cntk", "2.7.post2", "cntk", says="2.7"),
    # two compute at a time, but it is the caller and a pool of two that share the work: on a busy machine three wait
    Tested("jax", "0.10.2", "jax", threads_beside=1),
    Tested("lightgbm", "4.7.0", "lightgbm", has_network=False),
    Tested("mxnet", "1.9.1", "mxnet"),
    Tested("ncnn", "1.0.20261020", "ncnn"),
    Tested("onnxruntime", "1.31.1", "onnx", ""),
    Tested("onnxruntime", "1.17.3", "onnx", ""),
    Tested("onnxruntime", "1.10.0", "onnx", ""),
    Tested("opencv", "4.14.0.94", "onnx", ""),
    Tested("openvino", "2026.4.1", "openvino"),
    Tested("paddle", "3.3.1", "paddle"),
    Tested("pytorch", "2.13.0", "pytorch"),
    Tested("tensorflow", "2.21.0", "tensorflow"),
    Tested("tensorflow", "1.15.5", "tensorflow1"),
    # its profile knows no shapes that are open
    Tested("tflite", "2.3.0", "tflite", "tensorflow", profiles_fixed_only=True),
    Tested("xgboost", "3.2.0", "xgboost", has_network=False),
]


@cache
def environment_of(framework: str, version: str) -> BuiltEnvironment:
    return Environments(HOME).make(need_of(framework, parse_constraint(version)))


@cache
def portable() -> Path:
    return portable_folder(HOME)


def variables_of(framework: str, built: BuiltEnvironment, threads: int = 1) -> dict[str, str]:
    """What a worker would set for the framework's process."""
    return {
        **child_environment(),
        **framework_variables(threads, predictors().get(framework).environment),
        **built.variables,
        **library_variables(framework, HOME),
        "HOME": str(HOME / "worker-home"),
    }


def host_of(tested: Tested, threads: int = 1) -> FrameworkHost:
    """What a worker is told to reach the framework."""
    built = environment_of(tested.framework, tested.version)
    return FrameworkHost(
        python=built.python, portable=str(portable()), variables=variables_of(tested.framework, built, threads)
    )


def exported(tested: Tested, network: Path | None, batch: int | None = None) -> dict[str, Any]:
    """`graph_path`, `weights_path`, `options` and what else the exporter said; made once per exporter and network."""
    script = EXPORTERS / f"{tested.exporter}.py"
    exporters = {one.exporter for one in TESTED}
    shared = [file for file in sorted(EXPORTERS.glob("*.py")) if file.stem not in exporters]
    content = script.read_bytes() + b"".join(file.read_bytes() for file in shared)
    for file in sorted(network.iterdir()) if network else []:
        content += file.read_bytes()
    key = hashlib.sha256(content + f"{tested.id} {batch}".encode()).hexdigest()[:16]
    folder = HOME / "exports" / f"{tested.id}-{key}"
    if not (folder / "files.json").is_file():
        _export(tested, script, network, batch, folder)
    said = json.loads((folder / "files.json").read_text())
    weights = said.get("weights")
    return {
        **said,
        "graph_path": str(folder / said["graph"]),
        "weights_path": str(folder / weights) if weights else None,
    }


def _export(tested: Tested, script: Path, network: Path | None, batch: int | None, folder: Path) -> None:
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(made, ignore_errors=True)
    python, variables = sys.executable, dict(os.environ)
    if tested.made_in != "":
        maker = next(one for one in TESTED if one.framework == (tested.made_in or tested.framework))
        maker = maker if tested.made_in else tested
        built = environment_of(maker.framework, maker.version)
        python, variables = built.python, variables_of(maker.framework, built)
    command = [python, str(script), *([str(network)] if network else []), str(made)]
    command += ["--batch", str(batch)] if batch else []
    (HOME / "worker-home").mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    if folder.exists():
        shutil.rmtree(made)
    else:
        made.rename(folder)
