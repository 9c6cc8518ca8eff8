import os

import pytest

from mlmodelscope.measure.memory import group_resident_bytes, parse_status, peak_resident_bytes, resident_bytes

NOBODY = 2**22 + 1  # above the kernel's largest process id


def test_status_lines_in_bytes():
    text = "Name:\tpython\nVmHWM:\t   1640 kB\nVmRSS:\t    820 kB\nThreads:\t1\n"
    assert parse_status(text) == {"VmHWM": 1640 * 1024, "VmRSS": 820 * 1024}


def test_a_kernel_thread_has_no_memory_lines():
    assert parse_status("Name:\tkthreadd\nThreads:\t1\n") == {}


def test_the_peak_of_this_process_grows_with_what_it_touches_and_stays():
    size = 48 * 2**20
    before = resident_bytes()
    block = bytearray(os.urandom(2**20) * 48)
    assert resident_bytes() >= before + size // 2
    del block
    assert peak_resident_bytes() >= before + size // 2
    assert peak_resident_bytes(os.getpid()) == peak_resident_bytes()


def test_a_process_that_is_gone_has_no_memory():
    assert peak_resident_bytes(NOBODY) is None
    assert resident_bytes(NOBODY) is None
    assert group_resident_bytes(NOBODY) == 0


@pytest.mark.parametrize("number", [os.getpgid(0), os.getsid(0)])
def test_the_own_group_and_session_hold_at_least_this_process(number):
    assert group_resident_bytes(number) >= resident_bytes() // 2
