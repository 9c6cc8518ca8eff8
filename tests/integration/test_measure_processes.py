"""A real tree of processes, with members that left their group and session, against what is counted."""

import subprocess
import sys

import pytest

from mlmodelscope.measure.processes import children_of, read_tree

TREE = """
import os, sys, threading, time
block = bytearray(b'x' * 50_000_000)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        threading.Thread(target=time.sleep, args=(600,)).start()
        sys.stdout.write('.')
        sys.stdout.flush()
        time.sleep(600)
time.sleep(600)
"""


@pytest.fixture
def tree():
    process = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.read(2) == b".."
    members = [process.pid, *children_of(process.pid)]
    yield process.pid
    for pid in members:
        subprocess.run(["kill", "-9", str(pid)], check=True)
    process.communicate()


def test_members_of_other_sessions_and_their_threads_count(tree):
    found = read_tree(tree)
    assert len(found.pids) == 3
    assert set(found.pids[1:]) == set(children_of(tree))
    assert found.tasks == 5


def test_a_shared_page_counts_once_when_it_matters(tree):
    found = read_tree(tree)
    assert found.resident_bytes > 150_000_000
    assert 50_000_000 < found.held_bytes() < 120_000_000


def test_a_crowd_is_not_counted_to_its_end(tree):
    assert read_tree(tree, most_tasks=1).tasks == 3  # the parent and one child with its thread


def test_a_process_that_is_gone_is_an_empty_tree():
    process = subprocess.Popen(["true"])
    process.wait()
    found = read_tree(process.pid)
    assert (found.tasks, found.resident_bytes, found.held_bytes()) == (0, 0, 0)
    assert children_of(process.pid) == []
