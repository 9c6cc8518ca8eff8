"""Choosing files, reading what uv says, the indexes that count, interpreters and libraries: no program is started."""

import json
from pathlib import Path

import pytest

from mlmodelscope.core.errors import (
    ConstraintError,
    DigestError,
    DownloadError,
    EnvironmentMissingError,
    StorageError,
    UnsatisfiableError,
)
from mlmodelscope.core.stack import PinnedPackage
from mlmodelscope.provision.environments import indexes, interpreters, sizes, uv
from mlmodelscope.provision.environments.interpreters import Interpreter, Interpreters
from mlmodelscope.provision.environments.libraries import check_libraries
from mlmodelscope.provision.environments.locks import (
    LockedFile,
    check_requirements,
    check_stack,
    format_lock,
    parse_lock,
    stack_of,
    tag_ranks,
)
from mlmodelscope.provision.environments.sizes import download_sizes, expected_size, format_size
from mlmodelscope.provision.pip_settings import PipSettings

PYTHON = Interpreter("/opt/python", "3.11.7", "CPython", "linux-x86_64", "", has_pip=True)


def wheel(tags: str, sha256: str, **fields: object) -> dict[str, object]:
    return {"url": f"https://index.example/p/thing-1.0-{tags}.whl", "hashes": {"sha256": sha256}, **fields}


class TestLocks:
    def test_the_wheel_of_the_best_tag_is_the_one(self):
        ranks = {"cp311-cp311-linux_x86_64": 0, "cp310-abi3-linux_x86_64": 1, "py3-none-any": 2}
        wheels = [
            wheel("py3-none-any", "a"),
            wheel("cp310-abi3-linux_x86_64", "b"),
            wheel("cp39-cp39-linux_x86_64", "c"),
        ]
        package = {"name": "thing", "version": "1.0", "wheels": wheels, "sdist": wheel("x", "d")}
        (chosen,) = parse_lock({"packages": [package]}, ranks)
        assert (chosen.sha256, chosen.is_wheel) == ("b", True)

    def test_without_a_wheel_the_source_is_taken(self):
        sdist = {"url": "https://index.example/p/thing-1.0.tar.gz", "hashes": {"sha256": "e"}, "size": 12}
        (chosen,) = parse_lock({"packages": [{"name": "thing", "version": "1.0", "sdist": sdist}]}, {})
        assert (chosen.sha256, chosen.is_wheel, chosen.size_bytes) == ("e", False, 12)

    def test_the_size_of_a_file_on_this_machine_is_known(self, tmp_path):
        path = tmp_path / "thing-1.0+cpu-py3-none-any.whl"
        path.write_bytes(bytes(77))
        wheels = [{"url": path.as_uri().replace("+", "%2B"), "hashes": {"sha256": "f"}}]
        (chosen,) = parse_lock({"packages": [{"name": "thing", "version": "1.0+cpu", "wheels": wheels}]}, {})
        assert chosen.size_bytes == 77

    def test_what_is_no_release_is_refused(self):
        with pytest.raises(UnsatisfiableError, match="thing is not a release"):
            parse_lock({"packages": [{"name": "thing", "vcs": {"type": "git"}}]}, {})

    def test_no_address_reaches_a_stack_or_a_lock(self):
        files = parse_lock(
            {"packages": [{"name": "thing", "version": "1", "wheels": [wheel("py3-none-any", "a")]}]}, {}
        )
        stack = stack_of(PYTHON, files)
        assert "index.example" not in stack.model_dump_json()
        assert format_lock(stack.packages) == "thing==1 --hash=sha256:a\n"
        assert format_lock([PinnedPackage(name="b", version="2")]) == "b==2\n"

    @pytest.mark.parametrize(
        ("version", "flags", "best"),
        [("3.11.7", "", "cp311-cp311-"), ("3.7.16", "m", "cp37-cp37m-"), ("3.13.0", "t", "cp313-cp313t-")],
    )
    def test_tags_are_of_the_interpreter_and_not_of_ours(self, version, flags, best):
        ranks = tag_ranks(Interpreter("/p", version, "CPython", "linux-x86_64", flags, has_pip=True))
        first = min(ranks, key=lambda tag: ranks[tag])
        assert first.startswith(best)
        assert ranks["py3-none-any"] > ranks[first]

    @pytest.mark.parametrize(
        "text",
        [
            *("--index-url=https://x", "-r other.txt", "a b", "", "thing @ https://index.example/t.whl", "./thing"),
            *(
                "thing @ git+https://index.example/t",
                "thing @ file:///t",
                "thing==1 --hash=sha256:0",
                "thing===${HOME}",
            ),
            "thing; os_name != '\n--index-url=https://index.example\n'",
        ],
    )
    def test_options_and_addresses_are_no_requirements(self, text):
        with pytest.raises(ConstraintError) as caught:
            check_requirements(["numpy<2", text])
        assert "index.example" not in str(caught.value.to_fields())

    @pytest.mark.parametrize(
        "changes",
        [
            *({"name": name} for name in ("x @ https://index.example/x.tar.gz", "x\n--index-url", "Upper", "")),
            *({"version": text} for text in ("1 --pre", "1\n-r /etc/passwd", "1\n", "*", "")),
            *({"sha256": text} for text in ("0" * 63, "0" * 64 + "\n-r x")),
        ],
    )
    def test_a_strangers_stack_is_names_versions_and_digests(self, changes):
        good = PinnedPackage(name="torch", version="2.13.0+cpu", sha256="0" * 64)
        stack = stack_of(PYTHON, [])
        check_stack(stack.model_copy(update={"packages": (good, PinnedPackage(name="a-b", version="1.0.post1"))}))
        with pytest.raises(ConstraintError, match="the recorded software stack is not one"):
            check_stack(stack.model_copy(update={"packages": (good, good.model_copy(update=changes))}))

    @pytest.mark.parametrize("python", ["3", "3.11/../../x", "/bin/sh", "3.11.x"])
    def test_a_strangers_python_is_a_version(self, python):
        with pytest.raises(ConstraintError, match="Python"):
            check_stack(stack_of(PYTHON, []).model_copy(update={"python": python}))

    def test_of_the_files_of_a_release_the_recorded_one_is_found(self):
        sdist = {"url": "https://index.example/p/thing-1.0.tar.gz", "hashes": {"sha256": "s"}, "size": 5}
        wheels = [wheel("py3-none-any", "a", size=6), wheel("py2-none-any", "b", size=7)]
        lock = {"packages": [{"name": "thing", "version": "1.0", "wheels": wheels, "sdist": sdist}]}
        found = [parse_lock(lock, {"py3-none-any": 0}, {sha256})[0] for sha256 in ("a", "b", "s", "other")]
        assert [(file.sha256, file.is_wheel, file.size_bytes) for file in found] == [
            ("a", True, 6),
            ("b", True, 7),
            ("s", False, 5),
            ("a", True, 6),
        ]

    def test_requirements_with_ranges_extras_and_markers_pass(self):
        check_requirements(["numpy>=1,<2", "thing[extra]==1.0", "other; python_version < '3.9'"])


CONFLICT = """error: No solution found when resolving dependencies
  cause: Because a==1 depends on b>=2 and you require a==1, we can conclude that you require b>=2.
         And because you require b<1, we can conclude that your requirements are unsatisfiable.

hint: `a` was found on https://user:secret@index.example/simple, but not at the requested version. By default, uv
 looks on.
"""
REFUSED = """error: Request failed after 3 retries in 8.1s
  cause: Failed to fetch: https://index.example/simple/six/
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""


class TestWhatToolsSay:
    def test_a_conflict_is_told_in_a_few_lines(self):
        error = uv.tool_error("no packages", CONFLICT)
        assert isinstance(error, UnsatisfiableError)
        assert error.message == (
            "no packages: Because a==1 depends on b>=2 and you require a==1, we can conclude that you require b>=2.\n"
            "And because you require b<1, we can conclude that your requirements are unsatisfiable."
        )

    def test_the_hint_about_wheels_is_kept(self):
        said = (
            CONFLICT + "\nhint: You require CPython 3.11 (`cp311`), but we only found wheels for the ABI tag `cp37m`\n"
        )
        assert uv.clean(said).endswith(
            "You require CPython 3.11 (`cp311`), but we only found wheels for the ABI tag `cp37m`"
        )

    @pytest.mark.parametrize(
        ("said", "kind"),
        [
            (REFUSED, DownloadError),
            ("ERROR: HTTPSConnectionPool(host='index.example', port=443): Max retries exceeded", DownloadError),
            ("error: Failed to write\n  cause: No space left on device (os error 28)", StorageError),
            ("error: failed to create `/x/y`: Read-only file system (os error 30)", StorageError),
            ("error: Hash mismatch for `six==1`\nExpected: a\nComputed: b", DigestError),
            ("error: Failed to build `thing==1`\n  cause: gcc: not found", EnvironmentMissingError),
            ("ERROR: No matching distribution found for six==99", UnsatisfiableError),
            ("error: something nobody has seen", EnvironmentMissingError),
        ],
    )
    def test_each_failure_has_its_class_and_names_no_registry(self, said, kind):
        error = uv.tool_error("making it", said)
        assert type(error) is kind
        assert "index.example" not in str(error.to_fields())

    def test_what_would_have_to_be_built_for_a_stranger_is_named(self):
        said = (
            "error: No solution found when resolving dependencies\n  cause: Because gast==0.2.2 has no usable wheels\n"
            "hint: Wheels are required for `gast` because building from source is disabled for all packages\n"
        )
        error = uv.tool_error("no packages", said)
        assert isinstance(error, UnsatisfiableError)
        assert "gast would have to be built here" in error.message
        assert error.fields["packages"] == ["gast"]
        assert "--untrusted" in str(error.hint)

    def test_a_conflict_with_a_date_says_so(self):
        said = CONFLICT + "\nhint: `a` was filtered by `exclude-newer` to only include packages uploaded before then\n"
        assert "held at a date" in str(uv.tool_error("no packages", said).hint)
        assert "held at a date" not in str(uv.tool_error("no packages", CONFLICT).hint)

    def test_what_pip_lists_aside_is_left_out(self):
        said = (
            "  Url 'file:///some/simple/six/' is ignored: it is neither a file nor a directory.\n"
            "ERROR: Could not find a version of six==99 (from -r /tmp/x.in (line 2)) (from versions: 1.0, 1.1)\n"
            "ERROR: No matching distribution found for six==99 (from -r /tmp/x.in (line 2))\n"
        )
        assert uv.clean(said) == "Could not find a version of six==99\nNo matching distribution found for six==99"

    def test_a_long_answer_is_cut(self):
        said = "\n".join(f"error: line {number} " + "x" * 300 for number in range(40))
        assert len(uv.clean(said)) < 1300

    def test_no_uv_says_how_to_get_it(self, monkeypatch, tmp_path):
        monkeypatch.setattr(uv.sys, "executable", str(tmp_path / "python"))
        monkeypatch.setattr(uv.importlib, "import_module", lambda name: object())
        monkeypatch.setattr(uv.shutil, "which", lambda name: None)
        with pytest.raises(EnvironmentMissingError) as caught:
            uv.find_uv()
        assert caught.value.hint == "pip install 'mlmodelscope[environments]'"


class TestIndexes:
    def test_the_digest_follows_what_counts_and_nothing_else(self, tmp_path):
        plain = {"HOME": str(tmp_path), "PATH": "/bin"}
        before = indexes.configuration_digest(plain)
        assert indexes.configuration_digest({**plain, "UV_CACHE_DIR": "/x", "LANG": "C"}) == before
        assert indexes.configuration_digest({**plain, "UV_INDEX": "https://index.example"}) != before
        assert indexes.configuration_digest({**plain, "PIP_FIND_LINKS": "/wheels"}) != before
        (tmp_path / ".config" / "pip").mkdir(parents=True)
        (tmp_path / ".config" / "pip" / "pip.conf").write_text("[global]\nindex-url = https://index.example\n")
        assert indexes.configuration_digest(plain) != before

    def test_uv_gets_the_indexes_of_pip(self, tmp_path):
        configured = PipSettings(("https://main.example", "https://more.example", "file:///x"), ("/w", "/v"), cert="/c")
        made = indexes.uv_environment({"PATH": "/bin", "VIRTUAL_ENV": "/mine"}, configured, tmp_path)
        assert made["UV_DEFAULT_INDEX"] == "https://main.example"
        assert made["UV_INDEX"] == "https://more.example file:///x"
        assert made["UV_FIND_LINKS"] == "/w,/v"
        assert made["UV_INDEX_STRATEGY"] == "unsafe-best-match"
        assert (made["SSL_CERT_FILE"], made["UV_CACHE_DIR"]) == ("/c", str(tmp_path))
        assert "VIRTUAL_ENV" not in made

    def test_what_the_user_told_uv_stands(self, tmp_path):
        told = {
            "UV_DEFAULT_INDEX": "https://mine.example",
            "UV_CACHE_DIR": "/k",
            "UV_FIND_LINKS": "/u",
            "UV_LINK_MODE": "copy",
        }
        made = indexes.uv_environment(told, PipSettings(("https://main.example",), ("/w",)), tmp_path)
        assert {name: made[name] for name in told} == {**told, "UV_FIND_LINKS": "/u,/w"}


class TestInterpreters:
    @pytest.fixture
    def machine(self, tmp_path, monkeypatch):
        asked = []

        def ask(path: Path) -> object:
            asked.append(path)
            version = path.parent.parent.name
            broken = {"version": None} if "broken" in path.parts else None
            return broken or {
                "version": version,
                "implementation": "CPython",
                "platform": "linux-x86_64",
                "flags": "",
                "has_pip": True,
            }

        def install(*parts: str) -> Path:
            path = tmp_path.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o755)
            return path

        monkeypatch.setattr(interpreters, "_ask", ask)
        return tmp_path, install, asked

    def test_the_first_version_that_is_there_is_taken_newest_patch_first(self, machine):
        root, install, _ = machine
        install(".pyenv", "versions", "3.8.9", "bin", "python3.8")
        newest = install(".pyenv", "versions", "3.8.18", "bin", "python3.8")
        install(".pyenv", "versions", "3.9.1", "bin", "python3.9")
        found = Interpreters(root / "cache.json", {"HOME": str(root)}, ()).find(("3.7", "3.8", "3.9"))
        assert (found.path, found.version, found.minor) == (str(newest), "3.8.18", "3.8")

    def test_a_whole_version_means_that_patch(self, machine):
        root, install, _ = machine
        older = install("root", "versions", "3.8.9", "bin", "python3.8")
        install("root", "versions", "3.8.18", "bin", "python3.8")
        found = Interpreters(root / "cache.json", {"PYENV_ROOT": str(root / "root")}, ()).find(("3.8.9", "3.8"))
        assert found.path == str(older)

    def test_the_versions_beside_shims_are_found_and_the_shims_left_alone(self, machine):
        root, install, asked = machine
        install("py", "shims", "python3.8")
        real = install("py", "versions", "3.8.1", "bin", "python3.8")
        assert Interpreters(root / "c.json", {"PATH": str(root / "py" / "shims")}, ()).find(("3.8",)).path == str(real)
        assert asked == [real]

    def test_each_is_asked_once_until_it_changes(self, machine):
        root, install, asked = machine
        install("opt", "3.8.1", "bin", "python3.8")
        for _ in range(2):
            Interpreters(root / "c.json", {}, [root / "opt" / "3.8.1" / "bin"]).find(("3.8",))
        assert len(asked) == 1
        import os

        os.utime(root / "opt" / "3.8.1" / "bin" / "python3.8", (1, 1))
        Interpreters(root / "c.json", {}, [root / "opt" / "3.8.1" / "bin"]).find(("3.8",))
        assert len(asked) == 2

    def test_what_may_change_beside_the_program_is_asked_again(self, machine, monkeypatch):
        root, install, _ = machine
        install("opt", "3.6.9", "bin", "python3.6")
        told = {"version": "3.6.9", "implementation": "CPython", "platform": "linux-x86_64", "flags": "m"}
        answers = iter([None, {**told, "has_pip": False}, {**told, "has_pip": True}])
        monkeypatch.setattr(interpreters, "_ask", lambda path: next(answers))

        def find() -> Interpreter:
            return Interpreters(root / "c.json", {}, [root / "opt" / "3.6.9" / "bin"]).find(("3.6",))

        with pytest.raises(EnvironmentMissingError):
            find()
        assert not find().has_pip
        assert find().has_pip
        assert find().has_pip, "it was asked once more, though nothing more can come"

    def test_what_an_earlier_release_kept_is_asked_again(self, machine):
        root, install, asked = machine
        path = install("opt", "3.8.1", "bin", "python3.8")
        (root / "c.json").write_text(json.dumps({f"{path} {path.stat().st_mtime_ns}": None}))
        assert Interpreters(root / "c.json", {}, [path.parent]).find(("3.8",)).path == str(path)
        assert asked == [path]

    def test_none_says_which_would_do_and_how_to_get_one(self, machine):
        root, install, _ = machine
        install("3.9.1", "bin", "python3.9")
        with pytest.raises(EnvironmentMissingError, match=r"no Python 3\.6 or 3\.7 was found") as caught:
            Interpreters(root / "c.json", {"PATH": str(root / "3.9.1" / "bin")}, ()).find(("3.6", "3.7"))
        assert "pyenv install 3.6" in str(caught.value.hint)
        assert caught.value.fields == {"python": ["3.6", "3.7"]}


class TestLibraries:
    def test_what_is_there_passes(self):
        check_libraries("anything", ("libc.so.6",))

    def test_what_is_missing_is_named_with_its_package(self):
        with pytest.raises(EnvironmentMissingError, match=r"cntk needs libmpi_nowhere\.so\.77") as caught:
            check_libraries("cntk", ("libc.so.6", "libmpi_nowhere.so.77"))
        assert caught.value.hint == "on Debian: apt-get install libopenmpi3"
        assert caught.value.fields["libraries"] == ["libmpi_nowhere.so.77"]


class TestSizes:
    def test_known_sizes_need_no_network(self, tmp_path):
        files = [
            LockedFile("a", "1", None, True, 10),
            LockedFile("b", "1", None, True, None, "https://index.example/b"),
        ]
        assert download_sizes(files, is_offline=True, cache=tmp_path / "sizes.json") == [10]
        assert download_sizes(files[:1], is_offline=False, cache=tmp_path / "sizes.json") == [10]
        assert not (tmp_path / "sizes.json").exists()

    def test_a_server_is_asked_once_for_a_file(self, tmp_path, monkeypatch):
        asked = []

        def answer(file: LockedFile) -> int | None:
            asked.append(file.name)
            return {"a": 7, "b": None, "c": 9}[file.name]

        monkeypatch.setattr(sizes, "_ask", answer)
        files = [
            LockedFile("a", "1", "0" * 64, True, None, "https://index.example/a"),
            LockedFile("b", "1", "1" * 64, True, None, "https://index.example/b"),
            LockedFile("c", "1", None, True, None, "https://index.example/c"),
        ]
        cache = tmp_path / "cache" / "sizes.json"
        assert sorted(download_sizes(files, is_offline=False, cache=cache)) == [7, 9]
        assert sorted(download_sizes(files, is_offline=False, cache=cache)) == [7, 9]
        assert sorted(asked) == ["a", "b", "b", "c", "c"]
        assert download_sizes(files, is_offline=True, cache=cache) == [7]
        assert "index.example" not in cache.read_text()

    @pytest.mark.parametrize(
        ("stated", "forecast", "expected"),
        [(None, None, None), (5, None, 5), (None, 7, 7), (5, 7, 5), (5, 2, 5), (5, 11, 11), (50, 1, 50)],
    )
    def test_what_was_measured_stands_unless_the_files_at_hand_are_much_larger(self, stated, forecast, expected):
        assert expected_size(stated, forecast) == expected

    def test_sizes_are_short(self):
        assert [format_size(size) for size in (10, 143e6, 1.54e9)] == ["1 MB", "143 MB", "1.5 GB"]
