"""What a worker can do to us, done for real: every end is a stored record, and nothing of the worker is left.

The fixture `lab` checks after each test that no process of its home lives and that no run folder is left.
"""

import os
import signal
import struct
from pathlib import Path

import pytest

from mlmodelscope.core.record import Failure

FORK_TWO_SLEEPERS = """
import os, time
for _ in range(0 if "children" in env else 2):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
env["children"] = 2
"""


def failure(lab, source: str, **fields) -> Failure:
    """The failure of an evaluation whose samples go through `source`."""
    record = lab.evaluate(lab.function("evil", source), dataset=lab.noise(), measure="performance", **fields)
    assert record.status == "failed"
    assert record.failure is not None
    assert record.performance is None
    assert record.artifacts == ()
    return record.failure


def test_a_function_that_raises_names_its_line_and_the_sample(lab):
    found = failure(lab, "first = 1\nraise ValueError('not this one')")
    assert (found.code, found.stage, found.launch) == ("function_failed", "warmup", 0)
    assert found.fields["line"] == 4
    assert found.fields["sample"] in found.message
    assert "ValueError: not this one" in found.message


def test_a_function_that_calls_exit_is_a_failed_function(lab):
    found = failure(lab, "import sys\nsys.exit(3)")
    assert (found.code, found.fields["line"]) == ("function_failed", 4)


def test_os_exit_is_a_crash_with_its_exit_code(lab):
    found = failure(lab, "import os\nos._exit(7)")
    assert (found.code, found.stage, found.fields["exit_code"]) == ("worker_crashed", "warmup", 7)
    assert "exit code 7 in stage warmup" in found.message


def test_a_segmentation_fault_is_a_crash_with_its_signal(lab):
    found = failure(lab, "import ctypes\nctypes.string_at(0)")
    assert (found.code, found.stage, found.fields["signal"]) == ("worker_crashed", "warmup", "SIGSEGV")


def test_the_end_of_the_log_is_kept(lab):
    found = failure(lab, "import os, sys\nprint('last words', file=sys.stderr, flush=True)\nos._exit(1)")
    assert found.log_tail == "last words\n"


def test_a_crash_is_seen_while_children_hold_the_socket_open(lab):
    found = failure(lab, FORK_TWO_SLEEPERS + "os._exit(7)", limits={"sample_seconds": 60})
    assert (found.code, found.fields["exit_code"]) == ("worker_crashed", 7)


def test_an_endless_loop_meets_the_limit_of_a_sample(lab):
    found = failure(lab, "while True: pass", limits={"sample_seconds": 0.5})
    assert (found.code, found.stage, found.fields["limit"]) == ("time_limit", "warmup", "sample")
    assert "--sample-time-limit" in found.hint


def test_a_launch_meets_its_limit_though_it_moves(lab):
    found = failure(lab, "import time\ntime.sleep(0.05)", scenario={"min_queries": 10**6}, limits={"run_seconds": 2})
    assert (found.code, found.stage, found.fields["limit"]) == ("time_limit", "measure", "run")


def test_a_loop_while_loading_meets_the_limit_of_the_launch(lab):
    model = lab.function("evil", "pass")
    text = Path(model).read_text().replace("def fun", "while True: pass\\n\\ndef fun")
    assert "while True" in text
    Path(model).write_text(text)
    record = lab.evaluate(model, dataset=lab.noise(), limits={"run_seconds": 2})
    assert (record.failure.code, record.failure.stage) == ("time_limit", "load")


def test_memory_without_end_meets_its_limit(lab):
    hoard = "import time\nkept = []\nfor _ in range(100):\n    kept.append(b'x' * 20_000_000)\n    time.sleep(0.05)"
    found = failure(lab, hoard, limits={"memory_bytes": 400_000_000})
    assert found.code == "memory_limit"
    assert found.fields["used_bytes"] > found.fields["limit_bytes"] == 400_000_000


def test_memory_of_children_counts(lab):
    hoard = "import os, time\nif os.fork() == 0:\n    kept = b'x' * 500_000_000\n    time.sleep(60)\ntime.sleep(60)"
    assert failure(lab, hoard, limits={"memory_bytes": 400_000_000}).code == "memory_limit"


def test_children_end_with_a_worker_that_is_killed(lab):
    found = failure(lab, FORK_TWO_SLEEPERS + "time.sleep(600)", limits={"sample_seconds": 1})
    assert found.code == "time_limit"
    lab.wait_until_all_gone()


def test_children_end_with_a_worker_that_succeeds(lab):
    model = lab.function("forks", FORK_TWO_SLEEPERS)
    record = lab.evaluate(model, dataset=lab.noise(), measure="performance")
    assert record.status == "succeeded"
    lab.wait_until_all_gone()


def test_chatter_harms_nothing(lab):
    chatter = """
import os, sys
os.write(1, b"x" * 500_000)
sys.stderr.write("y" * 500_000)
print('{"type": "done"}')
"""
    record = lab.evaluate(lab.function("chatty", chatter), dataset=lab.noise())
    assert record.status == "succeeded"
    assert record.accuracy.samples == 4


def test_a_function_that_closes_our_files_is_a_crash(lab):
    assert failure(lab, "import os\nos.closerange(3, 256)").code == "worker_crashed"


def message(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (b"\xff\xff\xff\xff", "announced a message of 4294967295 bytes"),
        (message(b"abc"), "no JSON"),
        (message(b"\xff\xff"), "no JSON"),
        (message(b"[]"), "without a type"),
        (message(b"{}"), "without a type"),
        (message(b'{"type":"dance"}'), "unknown message 'dance'"),
        (message(b'{"type":"stage","stage":"nowhere"}'), "of stage 'nowhere'"),
        (message(b'{"type":"stage"}'), "of stage None"),
        (message(b'{"type":"done"}'), "its result lacks execution"),
    ],
)
def test_words_that_are_not_the_protocol(lab, words, complaint):
    found = failure(lab, f"import os, sys, time\nos.write(int(sys.argv[1]), {words!r})\ntime.sleep(60)")
    assert found.code == "worker_crashed"
    assert complaint in found.message


def test_a_later_launch_that_fails_keeps_what_is_known(lab):
    """The third process to come along dies: the facts of the launches before are in the record."""
    folder = lab.root / "seen"
    folder.mkdir()
    source = f"""
import os, pathlib
folder = pathlib.Path({str(folder)!r})
(folder / str(os.getpid())).touch()
if len(list(folder.iterdir())) == 3:
    os._exit(9)
"""
    found = lab.evaluate(lab.function("third", source), dataset=lab.noise(), scenario={"launches": 4})
    assert (found.failure.code, found.failure.launch) == ("worker_crashed", 2)
    assert [launch.index for launch in found.launches] == [0, 1]
    assert found.software is not None
    assert found.system is not None


def default_signals() -> None:
    """A test run in the background may have been started with SIGINT ignored, which children inherit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start_measuring(lab, wait_for, body: str = "", **options):
    """An `evaluate` that is measuring, and would for ten minutes."""
    mark = lab.root / "measuring"
    source = f"{body}\nimport pathlib, time\npathlib.Path({str(mark)!r}).touch()\ntime.sleep(0.02)"
    arguments = ("--launches", "1", "--duration", "600", "--warmup", "1")
    process = lab.start("evaluate", lab.function("slow", source), "-d", lab.noise(), *arguments, **options)
    wait_for(mark.exists, "the first sample")
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stores_a_record_and_ends_the_worker(lab, wait_for, number):
    process = start_measuring(lab, wait_for, FORK_TWO_SLEEPERS, preexec_fn=default_signals)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    lab.wait_until_all_gone()
    (record,) = lab.records()
    assert (record.status, record.failure.code) == ("failed", "interrupted")
    assert record.failure.stage in ("warmup", "measure")


def test_an_interrupt_keeps_the_answer_json(lab, wait_for):
    import json

    process = start_measuring(lab, wait_for, preexec_fn=default_signals)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    again = lab.start("evaluate", "slow.yml", "-d", "noise.yml", "--json", cwd=lab.root, preexec_fn=default_signals)
    wait_for(lambda: len(lab.processes()) > 1, "the worker")
    again.send_signal(signal.SIGINT)
    out, _ = again.communicate(timeout=120)
    assert again.returncode == 130
    assert json.loads(out)["error"]["code"] == "interrupted"


def test_when_the_parent_is_killed_the_worker_and_its_children_go_too(lab, wait_for):
    process = start_measuring(lab, wait_for, FORK_TWO_SLEEPERS)
    workers = set(lab.processes()) - {process.pid}
    assert len(workers) >= 4  # the worker, its guardian, two children
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    lab.wait_until_all_gone()
    assert lab.records() == []
    (left,) = lab.home.glob("runs/*")
    lab.evaluate(lab.function("after", "pass"), dataset=lab.noise())
    assert left.is_dir()  # too young to be judged
    os.utime(left, (0, 0))
    lab.evaluate(lab.function("after", "pass"), dataset=lab.noise())
    assert not left.exists()


def test_the_folder_of_a_living_run_is_not_swept(lab, wait_for):
    process = start_measuring(lab, wait_for, preexec_fn=default_signals)
    (folder,) = lab.home.glob("runs/*")
    os.utime(folder, (0, 0))
    lab.evaluate(lab.function("beside", "pass"), dataset=lab.noise())
    assert folder.is_dir()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
