"""The command line as a program: exit codes, what goes to which stream, JSON, pipes, mistakes without tracebacks."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlmodelscope.cli.main import main

QUICK = ("--launches", "1", "--duration", "0", "--queries", "2", "--warmup", "1")


@pytest.fixture
def files(lab):
    """A lab whose folder holds good and bad files of every kind."""
    text = Path(lab.model()).read_text()
    lab.photos()
    lab.noise()
    lab.function("evil", "raise ValueError('bad luck')")
    lab.write("binary.yml", bytes(range(256)))
    lab.write("empty.yml", "")
    lab.write("list.yml", "- 1\n")
    lab.write("cut.yml", text[: len(text) // 2])
    lab.write("deep.yml", "a: " + "[" * 5000)
    lab.write("notes.txt", "no manifest, no picture\n")
    return lab


@pytest.fixture
def main_inside(files, monkeypatch, capsys):
    """The program's main function in this process, for many quick command lines: what it does not catch, fails."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mlmodelscope", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return (left.value.code, *capsys.readouterr())

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(files.root)
    monkeypatch.setenv("MLMODELSCOPE_HOME", str(files.home))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    yield run
    signal.signal(signal.SIGTERM, before)


class TestExitCodes:
    def test_0_and_the_result_on_standard_output(self, files):
        done = files.run("evaluate", "colours.yml", "-d", "photos.yml", *QUICK)
        assert done.code == 0
        assert "top-1" in done.out
        assert "83.3 %" in done.out
        assert "within one launch" in done.out
        assert "measuring" in done.err
        assert "measuring" not in done.out

    def test_1_for_a_failed_record_which_is_stored(self, files):
        done = files.run("evaluate", "evil.yml", "-d", "noise.yml", *QUICK)
        assert done.code == 1
        assert "failed: evil: " in done.err
        assert "(function_failed)" in done.err
        (record,) = files.records()
        shown = files.run("show", record.id[:20])
        assert shown.code == 0
        assert "FAILED in stage warmup" in shown.out
        assert "bad luck" in shown.out

    def test_1_if_one_of_several_fails(self, files):
        done = files.run("evaluate", "colours.yml", "evil.yml", "-d", "photos.yml", *QUICK)
        assert done.code == 1
        assert "failed: function_failed" in done.out
        assert [record.status for record in files.records()] == ["succeeded", "failed"]

    def test_2_for_a_mistake_in_what_was_asked(self, files):
        done = files.run("evaluate", "colors.yml", "-d", "photos.yml")
        assert (done.code, done.out) == (2, "")
        assert "did you mean colours.yml" in done.err
        assert files.records() == []

    def test_3_for_what_this_machine_cannot_do(self, files):
        files.model(source={"graph_path": "absent.onnx"})
        done = files.run("predict", "colours.yml", "photos/0-red/bright.png")
        assert (done.code, done.out) == (3, "")
        assert "(download_failed)" in done.err

    def test_4_for_a_framework_that_refuses(self, files):
        files.write("colours.onnx", b"text")
        done = files.run("predict", "colours.yml", "photos/0-red/bright.png")
        assert (done.code, done.out) == (4, "")
        assert "(model_format)" in done.err

    def test_validate_has_2_for_errors_and_0_for_none(self, files):
        assert files.run("validate", "colours.yml", "photos.yml").code == 0
        done = files.run("validate", "colours.yml", "cut.yml", "empty.yml")
        assert done.code == 2
        assert "cut.yml:" in done.out
        assert "empty.yml:1:1" in done.out


# a command line a line, and the end of the code that its error has
MISTAKES = """
usage               evaluat colours.yml
usage               evaluate
usage               evaluate colours.yml
usage               evaluate photos.yml -d photos.yml
usage               evaluate colours.yml -d colours.yml
usage               evaluate colours.yml -d photos.yml -i photos/0-red/dark.png
usage               evaluate colours.yml -d photos.yml --duration nan
usage               evaluate colours.yml -d photos.yml --duration inf
usage               evaluate colours.yml -d photos.yml --time-limit nan
usage               evaluate colours.yml -d photos.yml --threads 0
usage               evaluate colours.yml -d photos.yml --threads 1000000
usage               evaluate colours.yml -d photos.yml --samples -1
usage               evaluate colours.yml -d photos.yml --batch-size 2 --scenario single_stream
usage               evaluate colours.yml -d photos.yml --scenario batched
usage               evaluate colours.yml -d photos.yml --scenario poisson
usage               evaluate colours.yml -d photos.yml --option speed
usage               evaluate colours.yml -i ''
usage               evaluate colours.yml -i ftp://127.0.0.1/a.png
usage               evaluate colours.yml -i http://
input_invalid       evaluate colours.yml -i absent.png
input_invalid       evaluate colours.yml -i photos
unknown_name        evaluate nothing -d photos.yml
unknown_name        evaluate '' -d photos.yml
unknown_name        evaluate colours.yml -d nothing
unknown_name        evaluate ./absent.yml -d photos.yml
unknown_name        evaluate colours.yml -d photos.yml --framework onxruntime
unknown_name        evaluate colours.yml -d photos.yml --framework @1
constraint_invalid  evaluate colours.yml -d photos.yml --framework 'onnxruntime@!!'
constraint_invalid  evaluate colours.yml -d photos.yml --memory-limit lots
constraint_invalid  evaluate colours.yml -d photos.yml --memory-limit -5GB
constraint_invalid  evaluate colours.yml -d photos.yml --system nonsense
constraint_invalid  evaluate 'ResNet50@??' -d photos.yml
unsatisfiable       evaluate colours.yml -d photos.yml --framework 'onnxruntime@>99'
unsatisfiable       evaluate colours.yml -d photos.yml --system 'memory>=9999TB'
unsatisfiable       evaluate ResNet50@99 -d photos.yml
manifest_invalid    evaluate binary.yml -d photos.yml
manifest_invalid    evaluate empty.yml -d photos.yml
manifest_invalid    evaluate list.yml -d photos.yml
manifest_invalid    evaluate cut.yml -d photos.yml
manifest_invalid    evaluate deep.yml -d photos.yml
usage               predict
usage               predict colours.yml
unknown_name        predict nothing photos/0-red/dark.png
input_invalid       predict colours.yml absent.png
input_invalid       predict colours.yml -
sample_invalid      predict colours.yml notes.txt
usage               history --model @1
usage               history --framework @1
usage               history --limit 0
usage               history --after nothing
usage               history --status odd
constraint_invalid  history --model 'x@!!'
constraint_invalid  history --since yesterday
usage               show
unknown_name        show nothing
unknown_name        show ''
usage               compare
usage               compare one
unknown_name        compare one two
unknown_name        reproduce nothing
usage               models
usage               models show
unknown_name        models show nothing
usage               models add absent.yml
manifest_invalid    models add binary.yml
usage               models add photos.yml
unknown_name        models remove ResNet50
unknown_name        datasets show nothing
usage               datasets add colours.yml
usage               frameworks list extra
usage               validate
usage               --nonsense
""".strip().splitlines()


class TestMistakes:
    """No mistake gives a traceback (`run` looks for one); all say what is wrong on standard error."""

    @pytest.mark.parametrize("line", MISTAKES)
    def test_has_its_code_and_a_message(self, files, main_inside, line):
        code, _, words = line.partition(" ")
        exit_code, out, err = main_inside(*shlex.split(words), "--json")
        assert exit_code == 2
        assert json.loads(out)["error"]["code"] == code
        assert json.loads(out)["error"]["message"]
        assert err.strip()
        assert files.records() == []

    def test_without_json_nothing_is_on_standard_output(self, files):
        for words in ("evaluate", "show nothing", "history --model @1", "evaluate cut.yml -d photos.yml"):
            done = files.run(*words.split())
            assert (done.code, done.out) == (2, ""), words
            assert "rror: " in done.err

    @pytest.mark.parametrize(
        ("words", "near"),
        [
            ("evaluat x", "evaluate"),
            ("evaluate ResNet5 -d imagenet-photos", "ResNet50"),
            ("evaluate ResNet50 -d imagenet-photo", "imagenet-photos"),
            ("evaluate colours.yml -d photos.yml -f onxruntime", "onnxruntime"),
            ("models show mobilenet", "MobileNet-v1"),
        ],
    )
    def test_an_unknown_name_gets_near_ones(self, files, words, near):
        done = files.run(*words.split())
        assert done.code == 2
        assert near in done.err

    def test_a_home_that_cannot_be_one(self, files):
        done = files.run("history", "--json", MLMODELSCOPE_HOME=str(files.root / "notes.txt"))
        assert done.code in (3, 4)
        assert "notes.txt" in done.json["error"]["message"]
        photo = next((files.root / "photos").rglob("*.png"))
        done = files.run("predict", "colours.yml", str(photo), MLMODELSCOPE_HOME=str(files.root / "notes.txt"))
        assert (done.code, "(storage_failed)" in done.err, "MLMODELSCOPE_HOME" in done.err) == (3, True, True)
        done = files.run("evaluate", "colours.yml", "-d", "photos.yml", MLMODELSCOPE_HOME="/proc/nowhere")
        assert done.code in (3, 4)
        assert "error: " in done.err


class TestJson:
    def test_every_command_prints_one_json_value(self, files):
        record = files.run("evaluate", "colours.yml", "-d", "photos.yml", *QUICK, "--json").json
        assert (record["status"], record["accuracy"]["labelled"]) == ("succeeded", 6)
        several = files.run("evaluate", "colours.yml", "evil.yml", "-d", "photos.yml", *QUICK, "--json").json
        assert [item["status"] for item in several] == ["succeeded", "failed"]
        first, second, failed = record["id"], several[0]["id"], several[1]["id"]
        answers = files.run("predict", "colours.yml", "photos/0-red/bright.png", "--json").json
        assert answers[0]["answer"]["classes"][0]["label"] == "red"
        rows = files.run("history", "--json").json["rows"]
        assert [row["id"] for row in rows] == [failed, second, first]
        assert files.run("show", first, "--json").json == record
        (comparison,) = files.run("compare", first, second, "--json").json
        assert comparison["kind"] == "repetition"
        again = files.run("reproduce", first, "--json").json
        assert again["reproduction"]["accuracy"] == "same answers"
        assert again["record"]["id"] not in (first, second, failed)
        (checked, wrong) = files.run("validate", "colours.yml", "cut.yml", "--json").json
        assert (checked["valid"], wrong["valid"]) == (True, False)
        assert wrong["problems"][0]["line"]

    def test_lists_and_manifests_too(self, main_inside):
        def read(words: str) -> Any:
            code, out, _ = main_inside(*words.split(), "--json")
            assert code == 0
            return json.loads(out)

        assert {item["name"] for item in read("models list")} >= {"ResNet50", "MobileNet-v1"}
        assert {item["name"] for item in read("datasets list")} >= {"imagenet-photos"}
        assert {item["name"] for item in read("frameworks list")} >= {"null", "onnxruntime"}
        assert read("models show colours.yml")["manifest"]["name"] == "colours"
        assert read("models add colours.yml") == {"added": "colours@1.0.0"}
        assert read("models remove colours") == {"removed": ["colours@1.0.0"]}


class TestPipes:
    def test_a_reader_that_leaves_early_hears_no_complaint(self, files):
        process = files.start("models", "list", "--json", cwd=files.root)
        process.stdout.close()
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")

    def test_head(self, files):
        command = "mlmodelscope models list --json | head -1"
        environment = files.environment(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=120)
        assert (done.stdout, done.stderr) == ("[\n", "")

    def test_an_evaluation_is_stored_though_nobody_reads(self, files):
        process = files.start("evaluate", "colours.yml", "-d", "photos.yml", *QUICK, cwd=files.root)
        process.stdout.close()
        process.communicate(timeout=120)
        assert [record.status for record in files.records()] == ["succeeded"]

    def test_predict_reads_standard_input(self, files):
        image = (files.root / "photos/2-blue/dark.png").read_bytes()
        done = files.run("predict", "colours.yml", "-", stdin=image)
        assert done.code == 0
        assert "blue" in done.out
        assert "colours launch" in done.err

    def test_predict_stores_nothing(self, files):
        files.run("predict", "colours.yml", "photos/0-red/dark.png")
        assert not (files.home / "mlmodelscope.db").exists()


class TestFolders:
    def test_files_named_like_modules_do_no_harm(self, files):
        trap = "raise SystemExit('the wrong module was imported')\n"
        for name in ("numpy", "random", "json", "onnxruntime", "mlmodelscope", "yaml", "click"):
            files.write(f"{name}.py", trap)
        done = files.run("evaluate", "colours.yml", "-d", "photos.yml", *QUICK)
        assert done.code == 0, done.err

    def test_relative_paths_start_from_where_the_manifest_lies(self, files, tmp_path_factory):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        photos = files.root / "photos.yml"
        done = files.run("evaluate", str(files.root / "colours.yml"), "-d", str(photos), *QUICK, cwd=elsewhere)
        assert done.code == 0, done.err
        assert list(elsewhere.iterdir()) == []

    def test_a_home_that_is_relative(self, files):
        done = files.run("evaluate", "colours.yml", "-d", "photos.yml", *QUICK, MLMODELSCOPE_HOME="own home")
        assert done.code == 0, done.err
        assert (files.root / "own home" / "mlmodelscope.db").is_file()

    def test_models_are_added_and_removed(self, files, tmp_path_factory):
        assert files.run("models", "add", "colours.yml").out == "added colours@1.0.0\n"
        assert files.run("datasets", "add", "photos.yml").code == 0
        assert "colours" in files.run("models", "list").out
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        done = files.run("evaluate", "colours@^1", "-d", "photos", *QUICK, cwd=elsewhere)
        assert done.code == 0, done.err
        assert files.run("models", "remove", "colours").out == "removed colours@1.0.0\n"
        assert files.run("models", "show", "colours").code == 2
        assert files.run("datasets", "show", "photos").code == 0


class TestHistory:
    def test_filters(self, files, main_inside):
        for model, dataset in (("colours.yml", "photos.yml"), ("evil.yml", "noise.yml")):
            files.run("evaluate", model, "-d", dataset, *QUICK)

        def names(*options: str) -> list[str]:
            code, out, _ = main_inside("history", "--json", *options)
            assert code == 0
            return [row["model"] for row in json.loads(out)["rows"]]

        assert names() == ["evil", "colours"]
        assert names("--model", "colours@>=1 <2") == ["colours"]
        assert names("--model", "colours@^2") == []
        assert names("--framework", "onnxruntime@>=1.17 <2") == ["colours"]
        assert names("--dataset", "noise") == ["evil"]
        assert names("--status", "failed") == ["evil"]
        assert names("--since", "2020-01-01") == ["evil", "colours"]
        assert names("--until", "2020-01-01") == []
        assert names("--system", "no such processor") == []
        first = files.run("history", "--json", "-n", "1").json
        assert [row["model"] for row in first["rows"]] == ["evil"]
        assert names("--after", first["after"]) == ["colours"]

    def test_an_empty_history_is_no_error(self, files):
        done = files.run("history")
        assert (done.code, done.out) == (0, "")
        assert "nothing" in done.err


def test_compare_says_first_what_it_is(files):
    files.model("swapped", color_layout="BGR")
    done = files.run("evaluate", "colours.yml", "swapped.yml", "-d", "photos.yml", *QUICK, "--json")
    left, right = (record["id"] for record in json.loads(done.out))
    text = files.run("compare", left, right).out
    assert "pipeline" in text.splitlines()[0]
    assert "step 1" in text


def test_show_prints_the_manifest_as_it_was_read(files):
    record = files.run("evaluate", "colours.yml", "-d", "photos.yml", *QUICK, "--json").json
    assert files.run("show", record["id"], "--manifest").out == (files.root / "colours.yml").read_text()
