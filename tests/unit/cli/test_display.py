"""Progress in a pipe and on a terminal."""

import io

import pytest

from mlmodelscope.cli.display import open_display
from mlmodelscope.core.events import EvaluationEvent
from mlmodelscope.core.record import STAGES


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def show(stream, act):
    with open_display(stream) as display:
        act(display)
    return stream.getvalue()


def evaluate(display):
    display.start(2_500_000, "a[b].onnx")
    display.advance(1_000_000)
    display.advance(1_500_000)
    display.done()
    display.on_event(EvaluationEvent("Net[x]", "provision"))
    for launch in range(2):
        for stage in ("start", "load", "prepare", "warmup"):
            display.on_event(EvaluationEvent("Net[x]", stage, launch, 2))
        for done in range(3):
            display.on_event(EvaluationEvent("Net[x]", "measure", launch, 2, done, None))
    display.on_event(EvaluationEvent("Net[x]", "accuracy", 0, 2, 5, 10))


def test_a_pipe_gets_one_line_per_change():
    assert show(io.StringIO(), evaluate).splitlines() == [
        "fetching a[b].onnx (2.5 MB)",
        "Net[x]: fetching files",
        "Net[x] launch 1/2: loading the model",
        "Net[x] launch 1/2: measuring",
        "Net[x] launch 2/2: loading the model",
        "Net[x] launch 2/2: measuring",
        "Net[x] launch 1/2: running every sample",
    ]


@pytest.mark.parametrize("total", [None, 0])
def test_a_transfer_of_unknown_size(total):
    assert show(io.StringIO(), lambda display: display.start(total, "labels.txt")) == "fetching labels.txt\n"


def test_a_terminal_gets_bars_that_are_gone_at_the_end():
    text = show(Terminal(), evaluate)
    for part in ("fetching a[b].onnx", "Net[x] launch 2/2: measuring", "2 queries", "1.0 MB"):
        assert part in text
    # the last thing written erases the bars
    assert text.rstrip().endswith("\x1b[2K")


def test_a_terminal_display_takes_things_out_of_order():
    def act(display):
        display.advance(10)
        display.done()
        display.start(None, "a")
        display.start(5, "b")
        display.advance(5)
        display.done()
        display.done()

    assert "fetching b" in show(Terminal(), act)


@pytest.mark.parametrize("stage", [*STAGES, "a stage of the future"])
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_every_stage_can_be_shown(stage, stream):
    show(stream(), lambda display: display.on_event(EvaluationEvent("Net", stage, 0, 1)))
