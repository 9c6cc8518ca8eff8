"""What the command says about this very machine."""

import os
import platform

import mlmodelscope


def test_this_machine_as_json(lab):
    done = lab.run("doctor", "--json")
    assert done.code == 0, done.out
    found = done.json
    assert (found["version"], found["python"]) == (mlmodelscope.__version__, platform.python_version())
    assert found["system"]["kernel"] == platform.release()
    assert found["system"]["usable_cpus"] <= len(os.sched_getaffinity(0))
    assert found["clock"]["step_ns"] >= 1
    assert found["noise"]["duration_ns"] > 500_000_000
    verdicts = {check["name"]: check["verdict"] for check in found["checks"]}
    assert verdicts["null"] == "good"
    assert {"governor", "memory", "steadiness", "clock", "home", "disk", "npm", "sandbox", "onnxruntime"} <= set(
        verdicts
    )
    assert not lab.home.exists()


def test_this_machine_as_text(lab):
    lines = lab.run("doctor").out.splitlines()
    assert lines[0].startswith("mlmodelscope ")
    assert any(line.startswith("processor ") for line in lines)


def test_a_home_that_is_a_file(lab):
    lab.write("file", "")
    done = lab.run("doctor", MLMODELSCOPE_HOME=str(lab.root / "file" / "home"))
    assert done.code == 3
    assert "cannot be written" in done.out
