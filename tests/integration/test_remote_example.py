"""The example in C++, built and evaluated: exotic hardware is a framework like any other."""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'mlmodelscope[rpc]'")

from mlmodelscope.core.predictor import Simulates
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.remote import Predictor

pytestmark = [pytest.mark.needs("grpc++"), pytest.mark.xdist_group("grpc++")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "remote-predictor"
# start and rows: 40 cycles, then 192 x 3 products by 8 lanes for each row, at 10 ns each
ROW_NS, START_NS = 720, 400


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy-fpga")
    # optimizing takes longer than all the rest
    configure = ["cmake", "-S", str(EXAMPLE), "-B", str(folder), "-DCMAKE_CXX_FLAGS_RELEASE=-O0"]
    for command in (configure, ["cmake", "--build", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "toy-fpga"


@pytest.fixture(params=["unix", "tcp"])
def device(request, program):
    with tempfile.TemporaryDirectory(prefix="fpga-") as folder:
        address = {"unix": f"unix:{folder}/s", "tcp": f"127.0.0.1:{free_port()}"}[request.param]
        with subprocess.Popen([str(program), address], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == f"toy-fpga is ready at {address}\n"
            yield address
            process.terminate()
            assert process.wait(60) == 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def bitfile():
    return str(EXAMPLE / "colours.bit")


def load(address, path, **changes):
    options = {"address": address, **changes.pop("options", {})}
    predictor = Predictor()
    return predictor, predictor.load({"graph_path": path, "threads": 1, "options": options, **changes})


def refused(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("batch", [1, 5, 2000])
@pytest.mark.parametrize("options", [{}, {"shared_memory": False}, {"upload": True}])
def test_it_computes_and_counts_its_own_time(device, bitfile, batch, options):
    predictor, facts = load(device, bitfile, options=options)
    assert (facts["engine"], facts["version"], facts["device"]) == ("toy-fpga", "1.0", "simulated")
    assert isinstance(predictor, Simulates)
    x = np.random.default_rng(0).standard_normal((batch, 3, 8, 8)).astype(np.float32)
    for count in (1, 2):
        scores, positive = predictor.predict([x])
        np.testing.assert_allclose(scores, x.mean((2, 3)) * 10, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(positive, np.maximum(scores, 0))
        assert predictor.now_ns() == count * (START_NS + batch * ROW_NS)
    assert predictor._client.shares_memory is options.get("shared_memory", True)
    predictor.unload()


def test_its_faults_are_typed(device, bitfile, tmp_path):
    (tmp_path / "broken.bit").write_text(Path(bitfile).read_text()[:300])
    (tmp_path / "foreign.bit").write_bytes(bytes(range(256)))
    assert refused(lambda: load(device, str(tmp_path / "broken.bit"))).code == "model_format"
    assert "TOYFPGA" in refused(lambda: load(device, str(tmp_path / "foreign.bit"))).message
    assert refused(lambda: load(device, str(tmp_path / "absent.bit"))).code == "model_format"
    assert refused(lambda: load(device, bitfile, options={"volts": 3})).code == "predictor_failed"
    assert refused(lambda: load(device, bitfile, outputs=[{"layer_name": "w"}])).fields["known"] == [
        "scores",
        "positive",
    ]
    announced = [{"layer_name": "image", "element_type": "uint8"}]
    assert refused(lambda: load(device, bitfile, inputs=announced)).code == "shape_mismatch"
    predictor, _ = load(device, bitfile, outputs=[{"layer_name": 1}])
    for wrong in (np.zeros((1, 3, 8, 7), np.float32), np.zeros((1, 3, 8, 8)), np.zeros((3, 8, 8), np.float32)):
        fault = refused(lambda wrong=wrong: predictor.predict([wrong]))
        assert (fault.code, {"expected", "got"} <= set(fault.fields)) == ("shape_mismatch", True)
    assert len(predictor.predict([np.zeros((1, 3, 8, 8), np.float32)])) == 1
    predictor.unload()


def test_the_newest_bitfile_is_on_the_device(device, bitfile):
    (old, _), (new, _) = load(device, bitfile), load(device, bitfile)
    x = np.ones((1, 3, 8, 8), np.float32)
    assert "another client" in refused(lambda: old.predict([x])).hint
    old.unload()
    np.testing.assert_allclose(new.predict([x])[0], [[10, 10, 10]], rtol=1e-5)
    new.unload()


@pytest.mark.parametrize("device", ["unix"], indirect=True)
def test_it_is_evaluated_like_any_other(lab, device):
    done = lab.run(
        *("evaluate", str(EXAMPLE / "colours.yml"), "--dataset", str(EXAMPLE / "photos.yml")),
        *("--framework", f"remote@{device}", "--timed", "inference", "--launches", "2", "--queries", "8"),
    )
    assert done.code == 0, done.err
    assert "framework  remote toy-fpga 1.0\n" in done.out
    assert "remote toy-fpga 1.0" in lab.run("history").out
    (record,) = lab.records()
    assert record.status == "succeeded"
    assert record.accuracy.top1.value == pytest.approx(5 / 6)
    assert {launch.clock for launch in record.launches} == {"simulated"}
    assert record.performance.latency_median_ns.value == START_NS + ROW_NS
    assert "toy-fpga" in record.execution.provider


def test_its_files_are_those_that_the_script_writes(tmp_path):
    subprocess.run([sys.executable, str(EXAMPLE / "make_files.py"), str(tmp_path)], check=True, timeout=60)
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 7
    # the pictures are compared by what is in them: another zlib may pack them otherwise
    for name in written:
        ours, theirs = EXAMPLE / name, tmp_path / name
        if name.suffix == ".png":
            with Image.open(ours) as kept, Image.open(theirs) as made:
                assert (kept.size, kept.tobytes()) == (made.size, made.tobytes())
        else:
            assert ours.read_bytes() == theirs.read_bytes()
