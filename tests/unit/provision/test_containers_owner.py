import os

import pytest

from mlmodelscope.provision.containers.owner import has_died, owner_label


def proc(root, *, boot="boot-a", namespace="pid:[1]", processes=()):
    """A /proc with the given (pid, state, start) processes; a name with blanks and brackets is no hindrance."""
    (root / "sys/kernel/random").mkdir(parents=True)
    (root / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
    (root / "self/ns").mkdir(parents=True)
    (root / "self/ns/pid").symlink_to(namespace)
    for pid, state, start in processes:
        (root / str(pid)).mkdir()
        (root / str(pid) / "stat").write_text(f"{pid} (a) b (c) {state} " + "0 " * 18 + f"{start} 0 0\n")
    return root


def test_this_process_lives():
    assert has_died(owner_label()) is False


def test_the_label_names_this_process():
    assert owner_label().split("/")[-2] == str(os.getpid())


@pytest.mark.parametrize(
    ("processes", "died"),
    [
        ([(7, "S", 123)], False),
        ([], True),
        ([(7, "S", 456)], True),  # the number was given to another process
        ([(7, "Z", 123)], True),
    ],
)
def test_whether_the_owner_died(tmp_path, processes, died):
    label = owner_label(7, proc(tmp_path / "before", processes=[(7, "R", 123)]))
    assert has_died(label, proc(tmp_path / "now", processes=processes)) is died


@pytest.mark.parametrize("change", [{"boot": "boot-b"}, {"namespace": "pid:[2]"}])
def test_an_owner_elsewhere_is_not_judged(tmp_path, change):
    label = owner_label(7, proc(tmp_path / "before", processes=[(7, "R", 123)]))
    assert has_died(label, proc(tmp_path / "now", **change)) is False


@pytest.mark.parametrize("label", ["", "x", "a/b/c/d/e", "boot-a/pid:[1]/x/1", "boot-a/pid:[1]/7/None"])
def test_a_label_that_is_not_ours_is_not_judged(tmp_path, label):
    assert has_died(label, proc(tmp_path / "now")) is False
