"""The portable layer on another architecture: the contract suites through the shim, and the checks inside its process.

`run.sh` starts this with the other architecture's Python. The name keeps it out of `make test`, where
tests/contract and tests/frameworks say the same of this machine's own architecture.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.core.plugins import installed_version, predictors
from mlmodelscope.core.settings import child_environment, framework_variables
from mlmodelscope.measure.processor import parse_cpuinfo
from mlmodelscope.measure.system import read_system
from mlmodelscope.provision.portable import portable_folder
from mlmodelscope.testing.inside import CHECKS
from mlmodelscope.testing.predictors import (
    LifecycleContract,
    PredictorCase,
    PredictorContract,
    ProfilesContract,
    RevealsContract,
)
from mlmodelscope.worker.foreign import open_foreign
from mlmodelscope.worker.job import FrameworkHost

FRAMEWORKS = Path(__file__).resolve().parents[2] / "frameworks"
sys.path[:0] = [str(FRAMEWORKS), str(FRAMEWORKS / "export")]

from onnxfile import onnx_model  # noqa: E402

import networks  # noqa: E402 - found by the line above

# a quarter of what a real machine is asked: every access is emulated
LARGE = networks.large(1300)
SAMPLES = [[np.array([row], dtype=np.float32)] for row in ([1, 2, 3, 4], [0, 0, 0, 0], [-3, 1, -1, 2])]
INSIDE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from mlmodelscope.testing.inside import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture(scope="module")
def portable(tmp_path_factory):
    return str(portable_folder(tmp_path_factory.mktemp("home")))


class BehindTheShim:
    """The fixtures of the contract suite for a predictor in a process of its own."""

    @pytest.fixture(autouse=True)
    def _environment(self):
        """Variables are set for the framework's process alone."""

    @pytest.fixture
    def predictor_class(self, portable):
        """Each call starts a shim: messages over a socket, tensors in shared memory."""
        found = predictors().get(self.framework)
        variables = framework_variables(1, found.environment)
        host = FrameworkHost(python=sys.executable, portable=portable, variables=variables)
        opened = []

        def open_one():
            opened.append(open_foreign(host, f"{found.__module__}:{found.__qualname__}"))
            opened[-1].name = found.name
            return opened[-1]

        yield open_one
        for predictor in opened:
            predictor.close()

    @pytest.fixture
    def predictor(self, predictor_class):
        return predictor_class()

    def test_is_registered_under_its_own_name(self):
        assert predictors().get(self.framework).name == self.framework

    def test_version_is_the_installed_one(self, predictor, case):
        installed = installed_version(predictors().get(self.framework))
        facts = predictor.load(self.model(case.open_batch))
        assert installed is None or facts["version"] == installed[1]


class TestNull(BehindTheShim, LifecycleContract):
    framework = "null"

    @pytest.fixture
    def case(self):
        zeros = [np.zeros((1, 1000), np.float32)]
        return PredictorCase("", "", "", samples=SAMPLES, expected=[zeros for _ in SAMPLES])


class TestOnnxruntime(BehindTheShim, PredictorContract, ProfilesContract, RevealsContract):
    framework = "onnxruntime"

    @pytest.fixture
    def case(self, tmp_path):
        contents = {"open": onnx_model(*networks.linear(), None), "fixed": onnx_model(*networks.linear(), 1)}
        contents["corrupt"] = contents["open"][: len(contents["open"]) // 2]
        for name, content in contents.items():
            (tmp_path / f"{name}.onnx").write_bytes(content)
        sums = [sample[0] @ networks.WEIGHTS.T + networks.BIAS for sample in SAMPLES]
        paths = [str(tmp_path / f"{name}.onnx") for name in contents]
        return PredictorCase(*paths, samples=SAMPLES, expected=[[y, np.maximum(y, 0)] for y in sums])

    @pytest.mark.parametrize("check", sorted(CHECKS))
    def test_inside_its_process(self, case, check, portable, tmp_path):
        large = tmp_path / "large.onnx"
        large.write_bytes(onnx_model(*LARGE, None))
        np.savez(tmp_path / "samples.npz", **{f"{i}/0": sample[0] for i, sample in enumerate(SAMPLES)})
        described = {
            "entry_point": "mlmodelscope.predictors.onnxruntime:Predictor",
            "open": self.model(case.open_batch),
            "large": self.model(str(large)),
            "large_bytes": sum(array.nbytes for array in LARGE[1].values()),
            "samples": str(tmp_path / "samples.npz"),
        }
        threads = 2 if check == "as_many_threads_as_asked" else 1
        (tmp_path / "case.json").write_text(json.dumps({**described, "threads": threads}))
        variables = framework_variables(threads, predictors().get(self.framework).environment)
        if check == "unloading_frees_the_memory":
            variables["MALLOC_MMAP_THRESHOLD_"] = "1000000"
        done = subprocess.run(
            [sys.executable, "-I", "-c", INSIDE, portable, str(tmp_path / "case.json"), check],
            env={**child_environment(), **variables},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, (done.stdout, done.stderr[-3000:])


@pytest.mark.parametrize(
    ("imitated", "model"),
    [
        ("cortex-a35", "ARM Cortex-A35"),
        ("cortex-a53", "ARM Cortex-A53"),
        ("cortex-a55", "ARM Cortex-A55"),
        ("cortex-a57", "ARM Cortex-A57"),
        ("cortex-a72", "ARM Cortex-A72"),
        ("cortex-a76", "ARM Cortex-A76"),
        ("cortex-a710", "ARM Cortex-A710"),
        ("neoverse-n1", "ARM Neoverse-N1"),
        ("neoverse-n2", "ARM Neoverse-N2"),
        ("neoverse-v1", "ARM Neoverse-V1"),
        ("a64fx", "Fujitsu A64FX"),
    ],
)
def test_the_processors_that_qemu_imitates_have_names(imitated, model):
    done = subprocess.run(
        ["cat", "/proc/cpuinfo"], env={**os.environ, "QEMU_CPU": imitated}, capture_output=True, text=True, check=True
    )
    found = parse_cpuinfo(done.stdout)
    assert found.model == model
    assert "asimd" in found.features


def test_facts_of_this_machine():
    facts = read_system()
    assert facts.architecture == "arm64"
    assert facts.cpu_model == "ARM Neoverse-N1"
    assert facts.usable_cpus >= 1
    assert facts.libc is not None
    assert facts.libc.startswith("glibc")
