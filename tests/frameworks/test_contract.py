"""Every framework keeps the predictor contract in an environment of its own, reached as a worker reaches it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import networks
from mlmodelscope.core.plugins import predictors
from mlmodelscope.core.predictor import Profiles, Reveals
from mlmodelscope.testing.inside import CHECKS
from mlmodelscope.testing.predictors import PredictorCase, PredictorContract, ProfilesContract, RevealsContract
from mlmodelscope.worker.foreign import open_foreign
from stacks import HOME, TESTED, Tested, environment_of, exported, host_of, portable, variables_of

pytestmark = pytest.mark.needs("registry", "pythons")

SAMPLES = [[np.array([row], dtype=np.float32)] for row in ([1, 2, 3, 4], [0, 0, 0, 0], [-3, 1, -1, 2])]
_INSIDE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from mlmodelscope.testing.inside import main; sys.exit(main(sys.argv[1:]))"
)


class InItsEnvironment:
    """The fixtures of the contract suite for a framework in an environment of its own."""

    tested: Tested

    @pytest.fixture(autouse=True)
    def _environment(self):
        """Variables are set for the framework's process alone."""

    @pytest.fixture
    def predictor_class(self):
        """Each call opens a process of its own; all of them end with the test."""
        found = predictors().get(self.tested.framework)
        opened = []

        def open_one(threads=1):
            opened.append(open_foreign(host_of(self.tested, threads), f"{found.__module__}:{found.__qualname__}"))
            opened[-1].name = found.name
            return opened[-1]

        yield open_one
        for predictor in opened:
            predictor.close()

    @pytest.fixture
    def predictor(self, predictor_class):
        return predictor_class()

    @pytest.fixture
    def case(self, tmp_path):
        tested = self.tested
        if not tested.has_network:
            return self.tree_case(tmp_path)
        network = networks.kept_network(networks.linear(), HOME / "networks")
        self.files = {"open": exported(tested, network)}
        has_fixed = self.files["open"].get("has_fixed_batch", True)
        if has_fixed:
            self.files["fixed"] = exported(tested, network, 1)
        corrupt = tmp_path / ("corrupt" + "".join(Path(self.files["open"]["graph_path"]).suffixes[-1:]))
        corrupt.write_bytes(b"\x08\x01this is no model" * 8)
        self.files["corrupt"] = {**self.files["open"], "graph_path": str(corrupt)}
        sums = [sample[0] @ networks.WEIGHTS.T + networks.BIAS for sample in SAMPLES]
        return PredictorCase(
            "open",
            "fixed" if has_fixed else "",
            "corrupt",
            samples=SAMPLES,
            expected=[[y, np.maximum(y, 0)] for y in sums],
            tolerance=1e-4,
            profiled="fixed" if tested.profiles_fixed_only else "",
        )

    def tree_case(self, tmp_path):
        self.files = {"open": exported(self.tested, None)}
        corrupt = tmp_path / ("corrupt" + "".join(Path(self.files["open"]["graph_path"]).suffixes[-1:]))
        corrupt.write_bytes(b"\x08\x01this is no model" * 8)
        self.files["corrupt"] = {**self.files["open"], "graph_path": str(corrupt)}
        said = np.load(Path(self.files["open"]["graph_path"]).parent / "answers.npz")
        samples = [[row[np.newaxis]] for row in said["inputs"][:3]]
        expected = [[said[name][i : i + 1] for name in self.files["open"]["outputs"]] for i in range(3)]
        return PredictorCase("open", "", "corrupt", samples=samples, expected=expected, tolerance=1e-5)

    def model(self, path, **changes):
        known = path.removesuffix(".absent")
        files = self.files[known]
        if known != path:
            files = {**files, "graph_path": files["graph_path"] + ".absent", "weights_path": None}
        layers = {"graph_path": files["graph_path"], "weights_path": files["weights_path"], "inputs": [], "outputs": []}
        options = {**files["options"], **changes.pop("options", {})}
        return {**layers, "threads": 1, "options": options, **changes}

    def test_is_registered_under_its_own_name(self):
        assert predictors().get(self.tested.framework).name == self.tested.framework

    def test_version_is_the_installed_one(self, predictor, case):
        assert predictor.load(self.model("open"))["version"] == (self.tested.says or self.tested.version)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_threads_are_honoured(self, predictor_class, case, threads):
        assert predictor_class(threads).load(self.model("open", threads=threads))["threads"] == threads

    def test_a_fixed_batch_refuses_another(self, predictor, case):
        if not case.fixed_batch:
            pytest.skip("files of this kind know no fixed batch")
        super().test_a_fixed_batch_refuses_another(predictor, case)

    @pytest.mark.parametrize("check", sorted(CHECKS))
    def test_inside_its_environment(self, case, check, tmp_path):
        tested = self.tested
        built = environment_of(tested.framework, tested.version)
        found = predictors().get(tested.framework)
        large = networks.large()
        files = exported(tested, networks.kept_network(large, HOME / "networks")) if tested.has_network else None
        if files is not None:
            self.files["large"] = files
        np.savez(
            tmp_path / "samples.npz", **{f"{i}/{j}": a for i, s in enumerate(case.samples) for j, a in enumerate(s)}
        )
        described = {
            "entry_point": f"{found.__module__}:{found.__qualname__}",
            "open": self.model("open"),
            "large": self.model("large") if files is not None else None,
            "large_bytes": sum(array.nbytes for array in large[1].values()),
            "samples": str(tmp_path / "samples.npz"),
        }
        threads = 2 if check == "as_many_threads_as_asked" else 1
        described |= {"threads": threads, "threads_beside": tested.threads_beside}
        variables = variables_of(tested.framework, built, threads)
        if check == "unloading_frees_the_memory":
            variables["MALLOC_MMAP_THRESHOLD_"] = "1000000"
        (tmp_path / "case.json").write_text(json.dumps(described))
        done = subprocess.run(
            [built.python, "-I", "-c", _INSIDE, str(portable()), str(tmp_path / "case.json"), check],
            env=variables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        verdict = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else {"passed": False}
        assert verdict["passed"], (verdict, done.stderr[-3000:])


def contract_of(tested: Tested) -> type:
    found = predictors().get(tested.framework)
    bases = [InItsEnvironment, PredictorContract]
    bases += [ProfilesContract] if issubclass(found, Profiles) else []
    bases += [RevealsContract] if issubclass(found, Reveals) else []
    return type(f"Test_{tested.id}", tuple(bases), {"tested": tested})


for _tested in TESTED:
    if _tested.framework in predictors().names():
        globals()[f"Test_{_tested.id}"] = contract_of(_tested)


def test_every_framework_is_tested():
    elsewhere = {"kserve-v2", "null", "remote", "tensorrt"}
    assert {tested.framework for tested in TESTED} == set(predictors().names()) - elsewhere
