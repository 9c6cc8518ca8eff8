"""What Caffe would end the process for is found in its files first."""

from types import SimpleNamespace

import pytest

from mlmodelscope.predictors.caffefile import check_weights, read_network, read_weights
from mlmodelscope.predictors.port import PredictorFault

KNOWN = {"Convolution", "Data", "HDF5Data", "HDF5Output", "ImageData", "Input", "Python", "ReLU", "SoftmaxWithLoss"}


class Message(SimpleNamespace):
    """Fields as protobuf's messages have them."""

    def HasField(self, name):  # noqa: N802 - protobuf's name
        return getattr(self, name, None) is not None


def layer(name, kind, bottom=(), top=(), **fields):
    return Message(name=name, type=kind, bottom=bottom, top=top, include=(), exclude=(), blobs=(), **fields)


def numbered(name, kind, bottom=(), top=()):
    """A layer of the format's version 1, where a type is a number with a name."""
    kinds = SimpleNamespace(Name=lambda number: kind)
    return layer(name, 7, bottom, top, LayerType=kinds)


def oldest(name, kind, bottom=(), top=()):
    """A layer of version 0, which is inside of one of version 1."""
    kinds = SimpleNamespace(Name=lambda number: "NONE")
    return layer("", 0, bottom, top, LayerType=kinds, layer=Message(name=name, type=kind))


def reading(*layers, old=()):
    """`read_network` of a file with these layers."""
    network = Message(layer=list(layers), layers=list(old), input=["data"])
    text_format = SimpleNamespace(Merge=lambda text, into: None, ParseError=SyntaxError)
    messages = SimpleNamespace(NetParameter=lambda: network)
    return read_network(text_format, messages, __file__, KNOWN)


def blob(shape, numbers=None, *, legacy=False):
    count = 1
    for size in shape:
        count *= size
    data = [0.0] * (count if numbers is None else numbers)
    sizes = dict(zip(("num", "channels", "height", "width"), shape, strict=False))
    own = None if legacy else SimpleNamespace(dim=shape)
    return Message(shape=own, data=data, double_data=[], **sizes)


def net(**shapes):
    return SimpleNamespace(params={n: [SimpleNamespace(shape=s) for s in blobs] for n, blobs in shapes.items()})


def refused(call, code):
    with pytest.raises(PredictorFault) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def test_a_sound_network_passes():
    assert reading(layer("r", "ReLU", ["data"], ["r"]), layer("s", "ReLU", ["r"], ["r"])).layer


@pytest.mark.parametrize(
    ("layers", "code", "said"),
    [
        ([], "model_format", "no layers"),
        ([layer("r", "Relu", ["data"], ["r"])], "predictor_failed", "no layer type 'Relu'"),
        ([layer("d", "Data", [], ["d"])], "predictor_failed", "from elsewhere"),
        ([layer("r", "ReLU", ["absent"], ["r"])], "model_format", "reads 'absent'"),
        ([layer("r", "ReLU", ["data"], ["r"]), layer("s", "ReLU", ["data"], ["r"])], "model_format", "a second time"),
    ],
)
def test_what_caffe_would_die_of_is_refused(layers, code, said):
    assert said in refused(lambda: reading(*layers), code).message


@pytest.mark.parametrize("kind", ["Python", "HDF5Output"])
def test_a_layer_that_does_more_than_compute_is_refused(kind):
    fault = refused(lambda: reading(layer("p", kind, ["data"], ["p"])), "model_format")
    assert (fault.fields["layer"], fault.fields["got"]) == ("p", kind)
    assert "not run" in fault.message


def rule(**fields):
    return Message(stage=(), not_stage=(), **fields)


@pytest.mark.parametrize(
    ("include", "exclude", "runs"),
    [
        ([rule(phase=0)], [], False),
        ([rule(phase=1)], [], True),
        ([rule(min_level=1)], [], True),
        ([], [rule(phase=1)], False),
        ([], [rule(phase=0)], True),
        ([], [rule(phase=1, min_level=5)], True),
    ],
)
def test_only_the_training_may_have_layers_that_reach_out(include, exclude, runs):
    written = layer("p", "Python", ["data"], ["p"])
    written.include, written.exclude = include, exclude
    if runs:
        refused(lambda: reading(written), "model_format")
    else:
        assert reading(written, layer("r", "ReLU", ["data"], ["r"])).layer


@pytest.mark.parametrize(
    ("old", "code", "said"),
    [
        (numbered("h", "HDF5_OUTPUT", ["data"]), "model_format", "writes a file"),
        (numbered("h", "HDF5_DATA", [], ["h"]), "predictor_failed", "from elsewhere"),
        (numbered("h", "NONE", ["data"], ["h"]), "predictor_failed", "no layer type 'NONE'"),
        (oldest("h", "hdf5_output", ["data"]), "model_format", "writes a file"),
        (oldest("h", "images", [], ["h"]), "predictor_failed", "from elsewhere"),
        (oldest("h", "unheard", ["data"], ["h"]), "predictor_failed", "no layer type 'unheard'"),
    ],
)
def test_layers_of_old_files_are_looked_at_too(old, code, said):
    fault = refused(lambda: reading(old=[old]), code)
    assert said in fault.message
    assert fault.fields["layer"] == "h"


def test_old_files_that_compute_pass():
    assert reading(old=[numbered("r", "RELU", ["data"], ["r"]), numbered("s", "SOFTMAX_LOSS", ["r"], ["s"])]).layers
    assert reading(old=[oldest("p", "padding", ["data"], ["p"]), oldest("c", "conv", ["p"], ["c"])]).layers


def test_a_file_of_two_ages_is_refused():
    mixed = refused(
        lambda: reading(layer("r", "ReLU", ["data"]), old=[numbered("s", "RELU", ["data"])]), "model_format"
    )
    assert "different versions" in mixed.message


def test_layers_of_the_training_do_not_count():
    training = layer("d", "Data", [], ["data"])
    training.include = [Message(phase=0)]
    assert reading(training, layer("r", "ReLU", ["data"], ["r"])).layer


def test_absent_files_are_named(tmp_path):
    path = str(tmp_path / "absent")
    text_format = SimpleNamespace(Merge=None, ParseError=SyntaxError)
    messages = SimpleNamespace(NetParameter=Message)
    assert path in refused(lambda: read_network(text_format, messages, path, set()), "model_format").message
    assert path in refused(lambda: read_weights(messages, path), "model_format").message


@pytest.mark.parametrize("legacy", [False, True])
def test_weights_that_fit_pass(legacy):
    stored = blob((1, 1, 3, 4), legacy=True) if legacy else blob((3, 4))
    check_weights(net(y=[(3, 4)]), {"y": [stored]}, "net", "weights")


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"x": [blob((3, 4))]}, "are missing"),
        ({"y": [blob((4, 3))]}, "have shapes"),
        ({"y": []}, "have shapes"),
        ({"y": [blob((3, 4), numbers=11)]}, "have shapes"),
    ],
)
def test_weights_of_another_network_are_refused(weights, said):
    assert said in refused(lambda: check_weights(net(y=[(3, 4)]), weights, "net", "weights"), "model_format").message


def test_a_network_without_weights_is_refused_only_if_it_has_parameters():
    check_weights(net(), {}, "net", None)
    fault = refused(lambda: check_weights(net(y=[(3, 4)]), {}, "net", None), "predictor_failed")
    assert fault.fields["missing"] == ["y"]
