"""What the layers inside a model compute, from the command line to a file: through the worker, wherever that runs."""

import numpy as np
import pytest

from mlmodelscope.core.errors import UnknownNameError, UsageError

COLOURS = {"a.png": (255, 0, 51), "b/a.png": (0, 102, 0)}


@pytest.fixture
def photos(lab):
    lab.photos(colours=COLOURS)
    return [str(lab.root / "photos" / name) for name in COLOURS]


def test_names_are_listed(lab, photos):
    done = lab.run("predict", lab.model(), "--layers", "list")
    assert (done.code, done.out.split()) == (0, ["pooled", "means", "scores"])
    assert lab.run("predict", lab.model(), *photos, "--layers", "list", "--json").json == ["pooled", "means", "scores"]


@pytest.mark.parametrize("options", [[], ["--layers", "pooled"]])
def test_all_else_needs_an_input(lab, options):
    done = lab.run("predict", lab.model(), *options)
    assert (done.code, done.out) == (2, "")
    assert "predict needs an INPUT" in done.err


def test_a_file_that_could_not_be_written_is_refused_before_anything_runs(lab, photos):
    done = lab.run(
        "predict", lab.model(), photos[0], "--layers", "pooled", "--save", str(lab.root / "absent" / "x.npz")
    )
    assert (done.code, "there is no folder" in done.err, "loading" in done.err) == (2, True, False)


def test_outputs_are_saved_by_input_and_layer(lab, photos):
    target = lab.root / "inside.npz"
    done = lab.run("predict", lab.model(), *photos, "--layers", "pooled,scores", "--save", str(target))
    assert done.code == 0, done.err
    assert "a.png/pooled" in done.out
    with np.load(target) as arrays:
        assert arrays.files == ["a.png/pooled", "a.png/scores", "a.png#2/pooled", "a.png#2/scores"]
        np.testing.assert_allclose(arrays["a.png/pooled"].reshape(-1), [1, 0, 0.2], rtol=1e-6)
        np.testing.assert_allclose(arrays["a.png#2/scores"], [[0, 4, 0]], rtol=1e-6)
    assert [path.name for path in lab.root.glob("*inside*")] == ["inside.npz"]


def test_without_a_file_they_are_described(lab, photos):
    done = lab.run("predict", lab.model(), photos[0], "--layers", "means", "--json")
    assert done.json == [{"name": "a.png/means", "shape": [1, 3], "element_type": "float32"}]


def test_the_library_gives_arrays(lab, photos):
    with lab.workspace() as workspace:
        arrays = workspace.reveal(lab.model(), photos[:1], ["scores", "means", "scores"], threads=1)
        assert list(arrays) == ["a.png/scores", "a.png/means"]
        np.testing.assert_array_equal(arrays["a.png/scores"], arrays["a.png/means"] * 10)
        assert workspace.layer_names(lab.model()) == ["pooled", "means", "scores"]
        with pytest.raises(UsageError, match="no layer was named"):
            workspace.reveal(lab.model(), photos, [])


def test_an_unknown_layer_is_named_with_its_like(lab, photos):
    target = lab.write("inside.npz", "as it was")
    with lab.workspace() as workspace, pytest.raises(UnknownNameError, match="no layer named 'pool'") as caught:
        workspace.reveal(lab.model(), photos, ["means", "pool"])
    assert "pooled" in str(caught.value.hint)
    done = lab.run("predict", lab.model(), *photos, "--layers", "pool", "--save", str(target))
    assert (done.code, target.read_text()) == (2, "as it was")


def test_a_framework_that_cannot_says_so_before_anything_starts(lab, photos):
    manifest = lab.function("nothing", "pass")
    with lab.workspace() as workspace, pytest.raises(UsageError, match="null cannot show what the layers"):
        workspace.reveal(manifest, photos, ["any"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--save", "x.npz"], "--save writes what layers compute"),
        (["--layers", "list", "--save", "x.npz"], "nothing to save"),
        (["--layers", "means", "--draw", "x.png"], "nothing to draw"),
        (["--layers", ","], "no layer was named"),
        (["--layers", "means", "--save", "absent/x.npz"], "there is no folder absent"),
    ],
)
def test_what_does_not_go_together_is_refused(lab, photos, options, reason):
    done = lab.run("predict", lab.model(), *photos, *options)
    assert done.code in (2, 3)
    assert reason in done.err
    assert not (lab.root / "x.npz").exists()


def test_a_bad_input_is_named(lab, photos):
    bad = lab.write("bad.png", "no picture")
    done = lab.run("predict", lab.model(), photos[0], str(bad), "--layers", "means", "--save", "x.npz")
    assert done.code == 2
    assert "bad.png" in done.err
    assert not (lab.root / "x.npz").exists()


@pytest.mark.needs("bwrap")
def test_a_strangers_model_shows_its_layers_through_the_sandbox(lab, photos):
    with lab.workspace() as workspace:
        arrays = workspace.reveal(lab.model(), photos, ["means"], is_trusted=False)
        assert [array.shape for array in arrays.values()] == [(1, 3), (1, 3)]
        names = workspace.layer_names(lab.model(), is_trusted=False)
    assert names == ["pooled", "means", "scores"]


@pytest.mark.needs("registry")
def test_a_framework_in_its_own_environment_shows_the_same(lab, photos):
    with lab.workspace() as workspace:
        here = workspace.reveal(lab.model(), photos, ["pooled", "scores"], environment="local")
        there = workspace.reveal(lab.model(), photos, ["pooled", "scores"], environment="venv")
    assert list(here) == list(there)
    for name, array in here.items():
        np.testing.assert_allclose(there[name], array, rtol=1e-6)
