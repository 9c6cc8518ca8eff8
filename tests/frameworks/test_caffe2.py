"""What only Caffe2 does: nets in two files, inputs that only their names tell, operators timed one by one."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened
from stacks import environment_of, variables_of

pytestmark = pytest.mark.needs("registry", "pythons")

X = np.array([[1, 2, 3, 4], [-3, 1, -1, 2]], np.float32)


@pytest.fixture(scope="module")
def predictor():
    with opened("caffe2") as found:
        yield found


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def test_facts_are_asked_of_the_framework(predictor):
    facts = predictor.load(exported_model("caffe2", "linear"))
    assert (facts["precision"], facts["device"], facts["threads"]) == ("float32", "cpu", 1)
    assert facts["library"].startswith("MKL ")
    assert [layer["shape"] for layer in facts["outputs"]] == [[None, 3], [None, 3]]


def test_a_net_without_stated_shapes_says_so(predictor):
    facts = predictor.load(exported_model("caffe2", "linear", options={}))
    assert [layer["shape"] for layer in facts["inputs"] + facts["outputs"]] == [None, None, None]
    fault = fault_of(lambda: predictor.predict([np.zeros((1, 5), np.float32)]))
    assert fault.code == "predictor_failed"
    assert "Dimension mismatch" in fault.message


def test_the_two_files_cannot_change_places(predictor):
    model = exported_model("caffe2", "linear")
    swapped = {**model, "graph_path": model["weights_path"], "weights_path": model["graph_path"]}
    assert fault_of(lambda: predictor.load(swapped)).code == "model_format"


def test_a_missing_or_damaged_init_net_is_a_fault(predictor, tmp_path):
    model = exported_model("caffe2", "linear")
    missing = fault_of(lambda: predictor.load({**model, "weights_path": None}))
    assert missing.code == "predictor_failed"
    assert missing.fields["expected"] == ["x", "b", "w"]
    damaged = tmp_path / "init_net.pb"
    damaged.write_bytes(Path(model["weights_path"]).read_bytes()[:-9])
    assert fault_of(lambda: predictor.load({**model, "weights_path": str(damaged)})).code == "model_format"


def test_operators_are_timed_and_shown(predictor, tmp_path):
    images = np.random.default_rng(1).standard_normal((2, 3, 32, 32), dtype=np.float32)
    predictor.load(exported_model("caffe2", "convolutional"))
    answer = predictor.predict([images])[0]
    predictor.start_profile(str(tmp_path))
    np.testing.assert_array_equal(predictor.predict([images])[0], answer)
    [layers] = predictor.stop_profile()
    assert [layer["name"] for layer in layers] == predictor.layer_names()
    assert layers[0]["operator"] == "Conv"
    assert layers[0]["outputs"] == [{"element_type": "float32", "shape": [2, 8, 16, 16]}]
    assert layers[0]["parameter_bytes"] == 4 * (8 * 3 * 3 * 3 + 8)
    c1, r1 = predictor.reveal([images], ["c1", "r1"])
    np.testing.assert_array_equal(r1, np.maximum(c1, 0))
    assert (c1 < 0).any()


# writes the changed nets inside Caffe2's own environment: a net with an operator of any type, alone or in another's net
CHANGED_NETS = """
import json, sys
from caffe2.proto import caffe2_pb2

class Trace(object):
    def __reduce__(self):
        return (open, (sys.argv[3], "w"))

def operator(kind):
    made = caffe2_pb2.OperatorDef(type=kind, output=["blob"])
    if kind.startswith("Python"):
        import pickle
        made.arg.add(name="pickled_builder", s=pickle.dumps((Trace(), [], {}), 2))
    if kind in ("Save", "Checkpoint", "Print", "Summarize"):
        made.input.append("x")
    if kind in ("Print", "Summarize"):
        made.arg.add(name="to_file", i=1)
    made.arg.add(name="db", s=sys.argv[3].encode())
    made.arg.add(name="absolute_path", i=1)
    made.arg.add(name="db_type", s=b"minidb")
    return made

base = open(sys.argv[1], "rb").read()
for kind in json.loads(sys.argv[4]):
    where, _, name = kind.rpartition("/")
    net = caffe2_pb2.NetDef.FromString(base)
    inner = caffe2_pb2.NetDef(op=[operator(name)])
    if where == "":
        net.op.extend(inner.op)
    elif where == "net":
        net.op.add(type="If", input=["x"]).arg.add(name="then_net").n.CopyFrom(inner)
    else:
        net.op.add(type="RecurrentNetwork", input=["x"]).arg.add(name="step_net", s=str(inner).encode())
    with open(sys.argv[2] + "/" + kind.replace("/", "-") + ".pb", "wb") as file:
        file.write(net.SerializeToString())
"""
REACHING = ["Python", "PythonDLPack", "Load", "Save", "Checkpoint", "Snapshot", "CreateDB", "DBExists", "Print"]
REACHING += ["CreateTextFileReader", "FileStoreHandlerCreate", "CreateCommonWorld_ENGINE_GLOO", "Onnxifi", "Summarize"]
REACHING += ["net/Python", "text/Save"]


def test_operators_that_do_more_than_compute_are_refused(predictor, tmp_path):
    model, trace = exported_model("caffe2", "linear"), tmp_path / "trace"
    built = environment_of("caffe2", "1.4.0")
    done = subprocess.run(
        [built.python, "-c", CHANGED_NETS, model["graph_path"], str(tmp_path), str(trace), json.dumps(REACHING)],
        env=variables_of("caffe2", built),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for kind in REACHING:
        path = str(tmp_path / (kind.replace("/", "-") + ".pb"))
        for files in ({"graph_path": path}, {"weights_path": path}):
            fault = fault_of(lambda files=files: predictor.load({**model, **files}))
            assert (fault.code, fault.fields.get("operator")) == ("model_format", kind.rpartition("/")[2])
            assert fault.hint
    assert not trace.exists()
