"""What a session does when its launch fails."""

import threading

import pytest

from mlmodelscope.worker import session as sessions
from mlmodelscope.worker.session import Session


class Elsewhere:
    takes_address = True

    def __init__(self):
        self.unloads = 0

    def unload(self):
        self.unloads += 1


class Here(Elsewhere):
    takes_address = False


def session_of(predictor):
    session = Session(None, memoryview(bytearray(8)).cast("q"))
    session._predictor = predictor
    return session


def test_a_program_elsewhere_is_told_that_its_model_is_wanted_no_more():
    predictor = Elsewhere()
    session_of(predictor).let_go()
    assert predictor.unloads == 1


@pytest.mark.parametrize("predictor", [None, Here()])
def test_what_ends_with_this_process_is_left_alone(predictor):
    session_of(predictor).let_go()
    assert predictor is None or predictor.unloads == 0


def test_a_program_that_refuses_is_no_second_failure(monkeypatch):
    def unload(self):
        raise RuntimeError("no")

    monkeypatch.setattr(Elsewhere, "unload", unload)
    session_of(Elsewhere()).let_go()


def test_a_program_that_hangs_is_not_waited_for(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(sessions, "_LET_GO_SECONDS", 0.01)
    monkeypatch.setattr(Elsewhere, "unload", lambda self: release.wait(60))
    session_of(Elsewhere()).let_go()
    assert not release.is_set()
    release.set()
