"""Real uv and real interpreters: packages of a folder made here, and some of the registry."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.shelf import Shelf

from mlmodelscope.core.errors import (
    ConstraintError,
    DigestError,
    DownloadError,
    EnvironmentMissingError,
    MLModelScopeError,
    StorageError,
    UnsatisfiableError,
    UsageError,
)
from mlmodelscope.core.stack import BuiltEnvironment, StackNeed
from mlmodelscope.provision import pip_settings
from mlmodelscope.provision.environments import Environments, building, uv, with_uv

pytestmark = pytest.mark.needs("uv")

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
SHORT = MINOR.replace(".", "")


@pytest.fixture(autouse=True)
def _pip_is_asked_anew() -> None:
    # its answer holds the variables of the moment
    pip_settings._configured.cache_clear()


@pytest.fixture
def shelf(tmp_path, monkeypatch) -> Shelf:
    made = Shelf(tmp_path / "shelf")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.folder))
    for name in list(os.environ):
        if name.startswith("UV_"):
            monkeypatch.delenv(name)
    made.add("plain", "1.0")
    made.add("plain", "2.0")
    made.add("frame", "1.0", "plain<2")
    return made


@pytest.fixture
def environments(tmp_path) -> Environments:
    return Environments(tmp_path / "home")


def need(*requirements: str, python: str = MINOR, **fields: object) -> StackNeed:
    return StackNeed(framework="frame", distribution="frame", python=(python,), requirements=requirements, **fields)  # type: ignore[arg-type]


def ask(built: BuiltEnvironment, program: str) -> str:
    answer = subprocess.run([built.python, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    return answer.stdout.strip()


def versions(built: BuiltEnvironment) -> dict[str, str]:
    return {package.name: package.version for package in built.stack.packages}


def leftovers(home: Path) -> list[str]:
    root = home / "environments"
    hidden = (".making", ".gone")
    found = [path.name for path in root.iterdir() if path.name.startswith(hidden)] if root.is_dir() else []
    return found + [path.name for path in (home / "cache" / "solving").glob("*")]


class TestMaking:
    def test_it_holds_what_was_solved_and_nothing_of_ours(self, environments, shelf, tmp_path):
        built = environments.make(need("frame"))
        assert versions(built) == {"frame": "1.0", "plain": "1.0"}
        assert built.stack.python.startswith(MINOR)
        digests = {package.name: package.sha256 for package in built.stack.packages}
        assert digests["plain"] == shelf.sha256(shelf.folder / "plain-1.0-py3-none-any.whl")
        assert digests["frame"] == shelf.sha256(shelf.folder / "frame-1.0-py3-none-any.whl")
        program = "from importlib.metadata import distributions as d; print(sorted(x.metadata['Name'] for x in d()))"
        assert ask(built, program) == "['frame', 'plain']"
        assert str(shelf.folder) not in (Path(built.folder).parent / "stack.json").read_text()
        assert leftovers(tmp_path / "home") == []

    def test_scripts_start_where_the_environment_lies(self, environments, shelf):
        built = environments.make(need("frame"))
        script = Path(built.folder) / "bin" / "frame-command"
        assert subprocess.run([script], capture_output=True).returncode == 1  # it has no print, and its Python says so
        assert b"ImportError" in subprocess.run([script], capture_output=True).stderr

    def test_the_second_time_no_program_is_started(self, environments, shelf, monkeypatch):
        built = environments.make(need("frame"))

        def refuse(*_: object, **__: object) -> None:
            pytest.fail("a program was started")

        monkeypatch.setattr(subprocess, "Popen", refuse)
        assert environments.make(need("frame")) == built

    def test_bytecode_is_there_shared_and_used(self, environments, shelf, tmp_path):
        built = environments.make(need("frame"))
        packages = Path(built.folder) / "lib" / f"python{MINOR}" / "site-packages"
        compiled = packages / "frame" / "__pycache__" / f"__init__.cpython-{SHORT}.pyc"
        assert compiled.stat().st_nlink == 2
        assert not (packages / "frame" / "tests" / "__pycache__").exists()
        inode = compiled.stat().st_ino
        environments.remove(built.digest)
        environments.make(need("frame"))
        assert compiled.stat().st_ino == inode
        found = subprocess.run(
            [built.python, "-v", "-c", "import frame"], capture_output=True, text=True, check=True
        ).stderr
        assert f"code object from '{compiled}'" in found

    def test_files_are_shared_with_the_package_cache(self, environments, shelf):
        built = environments.make(need("frame"))
        facts = environments.facts(built.digest)
        source = Path(built.folder) / "lib" / f"python{MINOR}" / "site-packages" / "frame" / "__init__.py"
        assert source.stat().st_nlink > 1
        assert facts.shared_bytes > 0
        assert facts.frameworks == ("frame",)

    def test_of_several_files_the_recorded_one_is_installed(self, environments, shelf):
        shelf.add("many", "1.0", text="any")
        best = shelf.add("many", "1.0", tag=f"cp{SHORT}-cp{SHORT}-linux_x86_64", text="best")
        shelf.add("many", "1.0", tag=f"cp{SHORT}-abi3-linux_x86_64", text="stable")
        if os.uname().machine != "x86_64":
            pytest.skip("the wheels of this test are for x86_64")
        built = environments.make(need("many"))
        assert ask(built, "import many; print(many.TEXT)") == "best"
        assert built.stack.packages[0].sha256 == shelf.sha256(best)

    def test_bounds_hold_back_what_comes_along(self, environments, shelf):
        shelf.add("loose", "1.0", "plain")
        assert versions(environments.make(need("loose")))["plain"] == "2.0"
        assert versions(environments.make(need("loose", bounds=("plain<2", "absent<3"))))["plain"] == "1.0"
        assert len(environments.list()) == 2

    def test_another_index_is_asked_anew(self, environments, shelf, tmp_path, monkeypatch):
        assert versions(environments.make(need("plain")))["plain"] == "2.0"
        other = Shelf(tmp_path / "other")
        other.add("plain", "3.0")
        monkeypatch.setenv("PIP_FIND_LINKS", f"{shelf.folder} {other.folder}")
        assert versions(environments.make(need("plain")))["plain"] == "3.0"


class TestTrouble:
    def test_a_conflict_is_shown_and_not_a_page_of_log(self, environments, shelf, tmp_path):
        with pytest.raises(UnsatisfiableError) as caught:
            environments.make(need("frame==1.0", "plain>=2"))
        assert "you require plain<2" in caught.value.message
        assert "you require plain>=2" in caught.value.message
        assert len(caught.value.message.splitlines()) < 8
        assert environments.list() == []
        assert leftovers(tmp_path / "home") == []

    def test_a_package_of_nobody(self, environments, shelf):
        with pytest.raises(UnsatisfiableError, match="absent"):
            environments.make(need("absent==1"))

    def test_an_interpreter_that_is_not_here(self, environments, shelf):
        with pytest.raises(EnvironmentMissingError, match=r"no Python 3\.99 was found"):
            environments.make(need("frame", python="3.99"))

    def test_a_missing_library_is_told_before_anything_is_fetched(self, environments, shelf, tmp_path):
        with pytest.raises(EnvironmentMissingError, match="libnowhere"):
            environments.make(need("frame", libraries=("libnowhere.so.7",)))
        assert not (tmp_path / "home").exists()

    def test_a_large_one_is_asked_about(self, environments, shelf, tmp_path):
        asked: list[int] = []

        def no(size: int) -> bool:
            asked.append(size)
            return False

        with pytest.raises(UsageError, match=r"2\.5 GB") as caught:
            environments.make(need("frame", size_bytes=2_500_000_000), may_install=no)
        assert "--yes" in str(caught.value.hint)
        assert asked == [2_500_000_000]
        assert leftovers(tmp_path / "home") == []
        environments.make(need("frame"), may_install=no)
        assert len(asked) == 1

    def test_files_that_are_much_larger_than_what_was_measured_count(self, environments, shelf, monkeypatch):
        monkeypatch.setattr(building, "ASKED_BYTES", 1000)
        monkeypatch.setattr(with_uv.WithUv, "install", lambda *_: pytest.fail("it was installed"))
        asked: list[int] = []
        with pytest.raises(UsageError):
            environments.make(need("frame", size_bytes=10), may_install=lambda size: bool(asked.append(size)))
        assert asked == [3 * sum(path.stat().st_size for path in shelf.folder.glob("*-1.0-*.whl"))]
        assert environments.list() == []

    def test_an_answer_is_not_asked_for_twice(self, environments, shelf, monkeypatch):
        monkeypatch.setattr(building, "ASKED_BYTES", 100)
        asked: list[int] = []
        environments.make(need("frame", size_bytes=200), may_install=lambda size: not asked.append(size))
        assert len(asked) == 1

    def test_one_that_turns_out_large_is_asked_about_too(self, environments, shelf, tmp_path, monkeypatch):
        monkeypatch.setattr(building, "download_sizes", lambda files, **_: [])
        monkeypatch.setattr(building, "ASKED_BYTES", 100)
        with pytest.raises(UsageError):
            environments.make(need("frame"), may_install=lambda size: False)
        assert environments.list() == []
        assert leftovers(tmp_path / "home") == []

    def test_a_home_that_is_a_file(self, tmp_path, shelf):
        (tmp_path / "home").write_text("")
        with pytest.raises(StorageError):
            Environments(tmp_path / "home").make(need("frame"))

    @pytest.mark.needs("mountns")
    def test_a_full_disk_says_so_and_keeps_nothing(self, tmp_path, shelf):
        shelf.add("huge", "1.0", text="x" * 9_000_000)
        program = (
            "import sys; from pathlib import Path\n"
            "from mlmodelscope.core.stack import StackNeed\n"
            "from mlmodelscope.core.errors import MLModelScopeError\n"
            "from mlmodelscope.provision.environments import Environments\n"
            "need = StackNeed.model_validate_json(sys.argv[2])\n"
            "try: Environments(Path(sys.argv[1])).make(need)\n"
            "except MLModelScopeError as error:\n"
            "    root = Path(sys.argv[1], 'environments')\n"
            "    left = [p.name for p in root.glob('*') if p.name not in ('.locks', '.solutions')]\n"
            "    print(error.code, error.hint, left)\n"
        )
        home = tmp_path / "home"
        home.mkdir()
        flags = ["-m"] if os.geteuid() == 0 else ["-r", "-m"]
        script = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
        line = [sys.executable, program, need("huge").model_dump_json()]
        command = ["unshare", *flags, "sh", "-c", script, "sh", str(home), *line]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.stdout.startswith("storage_failed free some space"), done.stderr
        assert done.stdout.endswith("[]\n")


@pytest.fixture
def server(shelf) -> Iterator[http.server.ThreadingHTTPServer]:
    """The shelf as an index on this machine."""
    for name in ("plain", "frame"):
        paths = sorted(shelf.folder.glob(f"{name}-*.whl"))
        links = [f'<a href="/{path.name}#sha256={shelf.sha256(path)}">{path.name}</a>' for path in paths]
        (shelf.folder / "simple" / name).mkdir(parents=True)
        (shelf.folder / "simple" / name / "index.html").write_text("<!DOCTYPE html><html><body>" + "\n".join(links))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(shelf.folder)))
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


class TestNetwork:
    @pytest.fixture
    def address(self, server, monkeypatch) -> str:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        host = f"127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("PIP_INDEX_URL", f"http://user:secret@{host}/simple")
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://{host}/simple")
        return host

    def test_without_the_index_the_cache_is_enough(self, environments, address, server):
        built = environments.make(need("frame"))
        assert built.stack.packages[0].sha256 is not None
        server.shutdown()
        server.server_close()
        environments.remove(built.digest)
        again = environments.make(need("frame"))
        assert again.stack == built.stack

    def test_an_index_without_dates_leaves_the_bounds(self, environments, address):
        said: list[str] = []
        built = environments.make(need("plain", as_of="2020-01-01", bounds=("plain<2",)), say=said.append)
        assert versions(built) == {"plain": "1.0"}
        assert any("does not tell when files were published" in line for line in said)

    def test_without_index_and_cache_it_says_so_and_names_neither_host_nor_password(
        self, environments, address, server
    ):
        server.shutdown()
        server.server_close()
        with pytest.raises(DownloadError, match="cannot be reached") as caught:
            environments.make(need("frame"))
        text = json.dumps(caught.value.to_fields())
        assert "127.0.0.1" not in text
        assert "secret" not in text
        assert environments.list() == []


CHILD = """
import os, signal, sys
from pathlib import Path
from typing import Any
from mlmodelscope.core.stack import StackNeed
from mlmodelscope.provision.environments import Environments, building, store, with_uv

def die(*args, **fields):
    os.kill(os.getpid(), signal.SIGKILL)

stage = sys.argv[3]
if stage == "install": with_uv.Uv.venv = die
if stage == "compile": building.compile_all = die
if stage == "place": store.EnvironmentStore.place = die
if stage == "note": store.EnvironmentStore.keep_solution = die
said = []
built = Environments(Path(sys.argv[1])).make(StackNeed.model_validate_json(sys.argv[2]), say=said.append)
print(built.digest, any("installing" in line for line in said))
"""


def start(home: Path, wanted: StackNeed, stage: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CHILD, str(home), wanted.model_dump_json(), stage]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class TestProcesses:
    def test_two_at_once_make_one(self, environments, shelf, tmp_path):
        children = [start(tmp_path / "home", need("frame")) for _ in range(2)]
        answers = [child.communicate()[0].split() for child in children]
        assert len({digest for digest, _ in answers}) == 1
        assert sorted(installed for _, installed in answers) == ["False", "True"]
        assert len(environments.list()) == 1

    @pytest.mark.parametrize("stage", ["install", "compile", "place", "note"])
    def test_one_that_is_killed_leaves_nothing_that_looks_whole(self, environments, shelf, tmp_path, stage):
        child = start(tmp_path / "home", need("frame"), stage)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        assert len(environments.list()) == (1 if stage == "note" else 0)
        built = environments.make(need("frame"))
        assert ask(built, "import frame; print(frame.__version__)") == "1.0"
        assert not list((tmp_path / "home" / "environments").glob(".making-*"))

    def test_what_another_process_uses_is_not_removed(self, environments, shelf, tmp_path):
        built = environments.make(need("frame"))
        program = (
            "import sys; from pathlib import Path; from mlmodelscope.provision.environments import Environments\n"
            "with Environments(Path(sys.argv[1])).in_use(sys.argv[2]): print('held', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", program, str(tmp_path / "home"), built.digest]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
            assert user.stdout is not None
            assert user.stdout.readline() == "held\n"
            with pytest.raises(UsageError, match="in use"):
                environments.remove(built.digest)
            assert environments.prune(0) == []
            user.kill()
        assert [facts.digest for facts in environments.prune(0)] == [built.digest]


class TestRebuilding:
    def test_a_recorded_stack_is_made_elsewhere_from_the_same_files(self, environments, shelf, tmp_path):
        built = environments.make(need("frame"))
        shelf.add("frame", "1.5")
        again = Environments(tmp_path / "elsewhere").rebuild(built.stack)
        assert again.stack == built.stack
        assert again.digest == built.digest
        assert ask(again, "import frame; print(frame.__version__)") == "1.0"

    def test_another_file_under_the_same_version_is_refused(self, environments, shelf, tmp_path):
        built = environments.make(need("frame"))
        shelf.add("frame", "1.0", "plain<2", text="other")
        with pytest.raises(MLModelScopeError) as caught:
            Environments(tmp_path / "elsewhere").rebuild(built.stack)
        assert isinstance(caught.value, DigestError)
        assert Environments(tmp_path / "elsewhere").list() == []

    def test_an_environment_of_other_files_is_not_taken_for_it(self, environments, shelf):
        built = environments.make(need("frame"))
        packages = [package.model_copy(update={"sha256": "0" * 64}) for package in built.stack.packages]
        with pytest.raises(DigestError, match="from other files"):
            environments.rebuild(built.stack.model_copy(update={"packages": tuple(packages)}))

    def test_a_stack_of_another_machine_is_refused(self, environments, shelf):
        stack = environments.make(need("frame")).stack
        with pytest.raises(UnsatisfiableError, match="win-amd64"):
            environments.rebuild(stack.model_copy(update={"platform": "win-amd64"}))

    def test_a_large_one_is_asked_about_before_anything_is_fetched(self, environments, shelf, tmp_path, monkeypatch):
        stack = environments.make(need("frame")).stack
        monkeypatch.setattr(building, "ASKED_BYTES", 1000)
        monkeypatch.setattr(with_uv.WithUv, "install", lambda *_: pytest.fail("it was installed"))
        sizes = [path.stat().st_size for path in shelf.folder.glob("*-1.0-*.whl")]
        asked: list[int] = []
        elsewhere = Environments(tmp_path / "elsewhere")
        with pytest.raises(UsageError, match="this record"):
            elsewhere.rebuild(stack, may_install=lambda size: bool(asked.append(size)))
        assert asked == [3 * sum(sizes)]
        assert leftovers(tmp_path / "elsewhere") == []


class TestStrangers:
    """`may_build=False`: nothing that a package brings along runs outside of the sandbox."""

    @pytest.fixture
    def mark(self, tmp_path) -> Path:
        return tmp_path / "was-here"

    def test_a_source_is_not_built(self, environments, shelf, tmp_path, mark):
        shelf.add_source("evil", "1.0", mark)
        shelf.add("wrapper", "1.0", "evil")
        for wanted in ("evil", "wrapper"):
            with pytest.raises(UnsatisfiableError, match="evil would have to be built here") as caught:
                environments.make(need(wanted), may_build=False)
            assert "--untrusted" in str(caught.value.hint)
        assert not mark.exists()
        assert environments.list() == []
        assert leftovers(tmp_path / "home") == []
        built = environments.make(need("evil"))
        assert mark.exists()
        assert environments.make(need("evil"), may_build=False) == built

    def test_a_recorded_source_is_not_built(self, environments, shelf, tmp_path, mark):
        shelf.add_source("evil", "1.0", mark)
        stack = environments.make(need("evil", "plain")).stack
        mark.unlink()
        elsewhere = Environments(tmp_path / "elsewhere")
        with pytest.raises(UnsatisfiableError, match="evil would have to be built here"):
            elsewhere.rebuild(stack, may_build=False)
        assert not mark.exists()
        assert elsewhere.rebuild(stack).stack == stack
        assert mark.exists()

    @pytest.mark.parametrize("may_build", [False, True])
    def test_what_a_wheel_says_at_the_start_of_python_is_not_run(
        self, environments, shelf, mark, may_build, monkeypatch
    ):
        monkeypatch.setenv("UV_COMPILE_BYTECODE", "1")
        shelf.add("evil", "1.0", more={"evil.pth": f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n"})
        built = environments.make(need("evil"), may_build=may_build)
        packages = Path(built.folder) / "lib" / f"python{MINOR}" / "site-packages"
        assert (packages / "evil" / "__pycache__" / f"__init__.cpython-{SHORT}.pyc").is_file()
        assert not mark.exists()
        ask(built, "")
        assert mark.exists()

    def test_bytecode_laid_over_another_package_stays_where_it_is(self, environments, shelf, tmp_path):
        shelf.add("evil", "1.0", "plain<2", more={"plain/__init__.py": "__version__ = 'evil'\n"})
        environments.make(need("evil"), may_build=False)
        assert list((tmp_path / "home" / "cache" / "bytecode").glob("*/*")) == []
        assert ask(environments.make(need("plain<2")), "import plain; print(plain.__version__)") == "1.0"

    def test_the_stack_of_a_record_holds_no_options(self, environments, shelf, tmp_path, mark):
        path = shelf.add_source("evil", "1.0", mark)
        stack = environments.make(need("plain")).stack
        for name in (f"evil @ {path.as_uri()} #", f"plain==1.0\nevil @ {path.as_uri()} #"):
            package = stack.packages[0].model_copy(update={"name": name, "sha256": None})
            with pytest.raises(ConstraintError):
                environments.rebuild(stack.model_copy(update={"packages": (package,)}), may_build=False)
        assert not mark.exists()


class TestOwnPip:
    """Interpreters that uv refuses."""

    @pytest.fixture(autouse=True)
    def _refusing_uv(self, tmp_path, monkeypatch, shelf):
        program = tmp_path / "uv"
        program.write_text(
            "#!/bin/sh\necho 'error: Python <3.99 is not supported but 3.11 was requested' >&2\nexit 2\n"
        )
        program.chmod(0o755)
        monkeypatch.setattr(uv, "find_uv", lambda: str(program))

    def test_the_interpreters_own_pip_takes_over(self, environments, shelf, tmp_path):
        built = environments.make(need("frame"))
        assert versions(built) == {"frame": "1.0", "plain": "1.0"}
        sha256 = shelf.sha256(shelf.folder / "frame-1.0-py3-none-any.whl")
        assert built.stack.packages[0].sha256 == sha256
        program = "from importlib.metadata import distributions as d; print(sorted(x.metadata['Name'] for x in d()))"
        assert ask(built, program) == "['frame', 'plain']"
        script = Path(built.folder) / "bin" / "frame-command"
        assert b"ImportError" in subprocess.run([script], capture_output=True).stderr
        assert leftovers(tmp_path / "home") == []
        again = Environments(tmp_path / "elsewhere").rebuild(built.stack)
        assert again.stack == built.stack

    def test_for_strangers_it_chooses_nothing_and_installs_wheels_alone(self, environments, shelf, tmp_path):
        mark = tmp_path / "was-here"
        shelf.add_source("evil", "1.0", mark)
        with pytest.raises(UnsatisfiableError, match="without running code of theirs"):
            environments.make(need("frame"), may_build=False)
        plain, evil = (environments.make(need(name)).stack for name in ("frame", "evil"))
        mark.unlink()
        elsewhere = Environments(tmp_path / "elsewhere")
        assert elsewhere.rebuild(plain, may_build=False).stack == plain
        with pytest.raises(UnsatisfiableError, match="evil") as caught:
            elsewhere.rebuild(evil, may_build=False)
        assert "--trust" in str(caught.value.hint)
        assert not mark.exists()
        assert leftovers(tmp_path / "elsewhere") == []


@pytest.mark.needs("registry")
class TestRegistry:
    def test_a_date_means_what_was_published_before_it(self, environments):
        old = environments.make(need("six", as_of="2019-11-01"))
        assert versions(old) == {"six": "1.12.0"}
        new = environments.make(need("six", as_of="2019-11-20"))
        assert versions(new) == {"six": "1.13.0"}
        assert {len(str(built.stack.packages[0].sha256)) for built in (old, new)} == {64}

    @pytest.mark.needs("python3.6")
    def test_the_oldest_python_works(self, environments):
        for version in ("3.6", "3.7", "3.8"):
            try:
                built = environments.make(need("six==1.16.0", python=version))
                break
            except EnvironmentMissingError:
                continue
        assert ask(built, "import six; print(six.__version__)") == "1.16.0"
        assert environments.rebuild(built.stack) == built


class TestCommands:
    @pytest.fixture
    def run(self, tmp_path, monkeypatch, capsys):
        from mlmodelscope.cli.main import _run

        monkeypatch.setenv("MLMODELSCOPE_HOME", str(tmp_path / "home"))

        def run(*arguments: str) -> tuple[int, str, str]:
            code = _run(["environments", *arguments])
            return (code, *capsys.readouterr())

        return run

    def test_list_and_show(self, environments, shelf, run):
        built = environments.make(need("frame"))
        code, out, _ = run("list", "--json")
        (facts,) = json.loads(out)["environments"]
        assert (code, facts["id"], facts["package_count"]) == (0, built.digest[:16], 2)
        assert facts["size_bytes"] == facts["own_bytes"] + facts["shared_bytes"]
        code, out, _ = run("show", built.digest[:5], "--json")
        assert json.loads(out)["stack"] == built.stack.model_dump(mode="json")
        code, out, _ = run("show", built.digest[:5])
        assert code == 0
        assert all(f"{p.name:<7}  {p.version:<7}  {p.sha256}" in out for p in built.stack.packages)
        assert built.digest[:16] in run("list")[1]

    @pytest.mark.parametrize("name", ["", "7893", "zz"])
    def test_a_name_that_nothing_has_is_told_as_that(self, run, monkeypatch, name):
        monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
        code, _, err = run("show", name)
        assert code == 2
        assert f"there is no environment named {name!r}" in err

    def test_days_are_a_number(self, run):
        assert run("prune", "--unused-for", "nan", "--yes")[0] == 2

    def test_remove_wants_every_name_right(self, environments, shelf, run):
        built = environments.make(need("frame"))
        code, _, err = run("remove", built.digest[:8], "feedfeed")
        assert (code, len(environments.list())) == (2, 1)
        assert "there is no environment named 'feedfeed'" in err
        code, out, _ = run("remove", built.digest[:8], built.digest, "--json")
        assert code == 0
        assert [facts["digest"] for facts in json.loads(out)["removed"]] == [built.digest]
        assert environments.list() == []

    def test_prune_asks_unless_told(self, environments, shelf, run):
        built = environments.make(need("frame"))
        assert run("prune", "--yes")[0] == 0
        code, _, err = run("prune", "--unused-for", "0")
        assert code == 2
        assert "hint: add --yes" in err
        assert len(environments.list()) == 1
        code, out, _ = run("prune", "--unused-for", "0", "--yes")
        assert (code, out) == (0, f"{built.digest[:16]}\n")
        assert environments.list() == []

    def test_prune_frees_what_only_the_removed_needed(self, environments, shelf, run, tmp_path):
        shelf.add("lonely", "1.0")
        bytecode, cache = tmp_path / "home" / "cache" / "bytecode", tmp_path / "home" / "cache" / "uv"
        environments.make(need("frame"))
        lonely = environments.make(need("lonely"))
        assert len(list(bytecode.glob("*/*"))) == 3
        environments.remove(lonely.digest)
        assert run("prune")[0] == 0
        assert len(list(bytecode.glob("*/*"))) == 2
        cached = json.loads(run("list", "--json")[1])["package_cache"]
        assert (cached["folder"], cached["unused_bytes"] > 0, cached["shared_bytes"] > 0) == (str(cache), True, True)
        code, out, _ = run("prune", "--packages", "--json")
        assert (code, json.loads(out)["removed"], json.loads(out)["cache_bytes"] > 0) == (0, [], True)
        assert environments.package_cache().shared_bytes == 0
        (built,) = environments.list()
        assert ask(environments.find(built.id), "import frame; print(frame.__version__)") == "1.0"

    def test_storage_counts_every_file_once_and_frees_what_nobody_uses(
        self, environments, shelf, tmp_path, run, capsys
    ):
        from mlmodelscope.cli.main import _run

        def storage(*arguments: str) -> Any:
            assert _run(["storage", *arguments, "--json"]) == 0
            return json.loads(capsys.readouterr().out)

        def kinds() -> dict[str, tuple[int, int]]:
            return {item["kind"]: (item["count"], item["size_bytes"]) for item in storage("show")["kinds"]}

        home = tmp_path / "home"
        shelf.add("lonely", "1.0")
        used, lonely = environments.make(need("frame")), environments.make(need("lonely"))
        facts = {one.digest: one for one in environments.list()}
        found = kinds()
        assert found["environments"] == (2, sum(one.own_bytes for one in facts.values()))
        cached = {
            f.stat().st_ino: f.stat().st_size for n in ("uv", "bytecode") for f in files_below(home / "cache" / n)
        }
        assert found["packages"] == (1, sum(cached.values()))
        for built in (used, lonely):
            mark = home / "environments" / built.digest[:16] / "used"
            os.utime(mark, (mark.stat().st_atime, time.time() - 2 * 86_400))
        assert storage("prune")["removed"] == []
        with environments.in_use(used.digest):
            removed = storage("prune", "--kind", "environments", "--older-than", "1d")["removed"]
        assert [item["name"] for item in removed] == [f"{lonely.digest[:16]} (frame)"]
        assert [one.digest for one in environments.list()] == [used.digest]
        assert storage("prune", "--kind", "packages", "--older-than", "1d")["removed"] == []
        old = time.time() - 2 * 86_400
        os.utime(home / "cache" / "uv", (old, old))
        os.utime(home / "environments" / used.digest[:16] / "used", (old, old))
        (item,) = storage("prune", "--kind", "packages", "--older-than", "1d")["removed"]
        assert item["kind"] == "packages"
        assert ask(environments.find(used.digest), "import frame; print(frame.__version__)") == "1.0"


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
