import pytest

from mlmodelscope.predictors.ncnnfile import input_shape, param_precision, read_param

TINY = """7767517
4 5
Input x 0 1 x 0=4
InnerProduct y 1 1 x y/made 0=3 1=1 2=12
Split s 1 2 y/made y y/1
ReLU z 1 1 y/1 z
"""


def read(tmp_path, text, known=("Input", "InnerProduct", "Split", "ReLU", "Convolution")):
    path = tmp_path / "network.param"
    path.write_text(text)
    return read_param(str(path), lambda operator: operator in known)


def test_layers_with_their_blobs_and_parameters(tmp_path):
    layers = read(tmp_path, TINY)
    assert [layer.name for layer in layers] == ["x", "y", "s", "z"]
    assert (layers[2].bottoms, layers[2].tops) == (["y/made"], ["y", "y/1"])
    assert layers[1].parameters == {0: "3", 1: "1", 2: "12"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("7767517", "7767518", "begin"),
        ("4 5", "4", "two counts"),
        ("4 5", "3 5", "announces"),
        ("ReLU z", "Nope z", "no operator 'Nope'"),
        ("ReLU z 1 1 y/1 z", "ReLU z 1 1 elsewhere z", "reads 'elsewhere'"),
        ("y/1 z\n", "y/1 y\n", "same name"),
        ("ReLU z 1 1 y/1 z", "ReLU z 1", "no layer"),
        ("ReLU z 1 1 y/1 z", "ReLU z 1 1 y/1", "cut short"),
        ("ReLU z 1 1 y/1 z", "ReLU z one 1 y/1 z", "no layer"),
        ("0=3 1=1 2=12", "0=3 1=1 2=", "cut short"),
        ("Input x 0 1 x 0=4", "ReLU x 0 1 x", "no input"),
        ("Input x 0 1 x 0=4", "Input x 0 1 x 0=4.0", "declares a size of 4.0"),
        ("Input x 0 1 x 0=4", "Input x 0 1 x 0=4 1=-5", "declares a size of -5"),
    ],
)
def test_what_would_end_the_process_is_refused(tmp_path, old, new, said):
    with pytest.raises(ValueError, match=said):
        read(tmp_path, TINY.replace(old, new))


@pytest.mark.parametrize(
    ("parameters", "shape"),
    [
        ("0=4", [None, 4]),
        ("0=5 1=4", [None, 4, 5]),
        ("0=5 1=4 2=3", [None, 3, 4, 5]),
        ("0=5 1=4 11=2 2=3", [None, 3, 2, 4, 5]),
        ("", None),
        ("0=-233 1=-233 2=3", None),
    ],
)
def test_an_input_declares_its_sizes_from_the_last_dimension(tmp_path, parameters, shape):
    layers = read(tmp_path, f"7767517\n1 1\nInput x 0 1 x {parameters}\n")
    assert input_shape(layers[0]) == shape


@pytest.mark.parametrize(("scale", "precision"), [("", "float32"), ("8=0", "float32"), ("8=2", "int8 quantised")])
def test_integer_weights_show_in_the_parameters(tmp_path, scale, precision):
    text = f"7767517\n2 2\nInput x 0 1 x 0=4\nConvolution c 1 1 x c 0=8 1=3 {scale}\n"
    assert param_precision(read(tmp_path, text)) == precision
