import contextlib
import os
import signal
import subprocess
import sys

import pytest

from mlmodelscope.measure.memory import group_resident_bytes, peak_resident_bytes, resident_bytes

BLOCK = 64 * 2**20
# a worker with a child in a process group of its own, as a framework's pool may have
WORKER = f"""
import os, sys
held = b"x" * {BLOCK}
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    more = b"y" * {BLOCK}
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.fixture
def worker():
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.stdin.close()  # which ends the child that left the group
    process.stdout.close()
    process.wait()


def test_a_session_counts_the_children_that_left_its_group(worker):
    alone = resident_bytes(worker.pid)
    assert alone >= BLOCK
    # the child holds a block of its own and shares the parent's, which counts for both
    assert group_resident_bytes(worker.pid) >= alone + BLOCK


def test_nothing_is_left_when_all_have_ended(worker):
    worker.stdin.close()
    worker.wait(timeout=30)
    assert group_resident_bytes(worker.pid) == 0


def test_the_peak_does_not_survive_exec_as_the_one_of_getrusage_does():
    program = f"""
import os, sys
big = b"x" * {BLOCK}
report = "import resource; from mlmodelscope.measure.memory import peak_resident_bytes as peak; "
report += "print(peak(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
os.execv(sys.executable, [sys.executable, "-c", report])
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    peak, inherited = map(int, finished.stdout.split())
    assert peak < BLOCK <= inherited
    assert peak_resident_bytes() > 0
