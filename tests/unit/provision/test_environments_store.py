"""The folder of environments: what is whole, found, used, removed. Entries are made by hand."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlmodelscope.core.errors import (
    DigestError,
    EnvironmentMissingError,
    StorageError,
    UnknownNameError,
    UsageError,
)
from mlmodelscope.core.stack import PinnedPackage, Stack, StackNeed
from mlmodelscope.provision.environments import Environments, building, bytecode
from mlmodelscope.provision.environments.caches import prune_bytecode
from mlmodelscope.provision.environments.interpreters import Interpreter
from mlmodelscope.provision.environments.locks import LockedFile
from mlmodelscope.provision.environments.store import EnvironmentStore, address_of

NEED = StackNeed(framework="thing", distribution="thing", python=("3.11",), requirements=("thing==1",))


PYTHON = Interpreter("/opt/python", "3.11.7", "CPython", "linux-x86_64", "", has_pip=True)


def stack(version: str = "1", sha256: str = "a" * 64) -> Stack:
    return Stack(
        python="3.11.7",
        implementation="CPython",
        platform="linux-x86_64",
        packages=(PinnedPackage(name="thing", version=version, sha256=sha256),),
    )


@pytest.fixture
def store(tmp_path: Path) -> EnvironmentStore:
    return EnvironmentStore(tmp_path)


def fill(folder: Path, *, shared_with: Path | None = None) -> None:
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "python").symlink_to("/bin/sh")
    (folder / "venv" / "own").write_bytes(bytes(100))
    if shared_with is not None:
        shared_with.write_bytes(bytes(1000))
        (folder / "venv" / "shared").hardlink_to(shared_with)


def make(store: EnvironmentStore, version: str = "1", sha256: str = "a" * 64, **options: Path) -> str:
    wanted = stack(version, sha256)
    with store.making(wanted.digest, lambda: None), store.new_entry(wanted.digest) as folder:
        fill(folder, **options)
        store.place(folder, wanted)
    return wanted.digest


def leftovers(store: EnvironmentStore) -> list[str]:
    return sorted(path.name for path in store.root.iterdir() if path.name.startswith((".making", ".gone")))


class TestPlacing:
    def test_what_was_placed_is_found(self, store):
        digest = make(store)
        built = store.load(digest)
        assert built is not None
        assert built.stack == stack()
        assert built.python == str(store.root / address_of(digest) / "venv" / "bin" / "python")
        assert leftovers(store) == []

    def test_a_failure_leaves_nothing(self, store):
        with store.new_entry(stack().digest) as folder:
            fill(folder)
        assert leftovers(store) == []
        assert store.load(stack().digest) is None

    @pytest.mark.parametrize(
        "damage", ["no stack", "no python", "other stack", "not json", "other schema", "no fields"]
    )
    def test_what_is_not_whole_is_not_found(self, store, damage):
        digest = make(store)
        entry = store.root / address_of(digest)
        path = entry / "stack.json"
        values = json.loads(path.read_text())
        if damage == "no stack":
            path.unlink()
        elif damage == "no python":
            (entry / "venv" / "bin" / "python").unlink()
            (entry / "venv" / "bin" / "python").symlink_to("/nowhere/python")
        elif damage == "other stack":
            path.write_text(json.dumps(values | {"stack": stack("2").model_dump()}))
        elif damage == "not json":
            path.write_text("{")
        elif damage == "other schema":
            path.write_text(json.dumps(values | {"schema": 99}))
        else:
            path.write_text(json.dumps(values | {"stack": {"python": "3"}}))
        assert store.load(digest) is None
        assert store.facts() == []
        make(store)
        assert store.load(digest) is not None
        assert leftovers(store) == []

    def test_a_file_in_the_way_is_a_storage_error(self, tmp_path):
        (tmp_path / "environments").write_text("")
        with pytest.raises(StorageError):
            make(EnvironmentStore(tmp_path))


class TestFacts:
    def test_own_and_shared_bytes_are_told_apart(self, store, tmp_path):
        digest = make(store, shared_with=tmp_path / "cached")
        store.keep_solution("k" * 64, digest, "thing")
        (facts,) = store.facts()
        assert facts.shared_bytes == 1000
        assert 100 <= facts.own_bytes < 2000
        assert facts.size_bytes == facts.own_bytes + 1000
        assert (facts.id, facts.frameworks, facts.python, facts.package_count) == (digest[:16], ("thing",), "3.11.7", 1)
        assert facts.made_at == pytest.approx(time.time(), abs=60)

    def test_the_last_used_comes_first(self, store):
        first, second = make(store, "1"), make(store, "2")
        os.utime(store.root / address_of(second) / "used", (5, 5))
        assert [facts.digest for facts in store.facts()] == [first, second]

    def test_an_empty_home_has_none(self, store):
        assert store.facts() == []
        assert store.prune(0) == []


class TestFinding:
    def test_a_beginning_is_enough(self, store):
        digest = make(store)
        assert store.find(digest[:4]).digest == store.find(digest).digest == store.find(digest[:16]).digest == digest

    def test_unknown_and_ambiguous_names_are_told(self, store):
        digests = [make(store, str(number)) for number in range(20)]
        letters = [digest[0] for digest in digests]
        twice = next(letter for letter in letters if letters.count(letter) > 1)
        with pytest.raises(UsageError, match="begins"):
            store.find(twice)
        with pytest.raises(UnknownNameError):
            store.find("nothing")
        with pytest.raises(UnknownNameError):
            store.find("")


class TestRemoving:
    def test_it_is_gone(self, store):
        digest = make(store)
        assert store.remove(digest[:6]).digest == digest
        assert store.load(digest) is None
        assert leftovers(store) == []

    def test_one_in_use_stays(self, store):
        digest = make(store)
        with store.in_use(digest), store.in_use(digest):
            assert store.facts()[0].is_in_use
            with pytest.raises(UsageError, match="in use"):
                store.remove(digest)
            assert store.prune(0) == []
        assert not store.facts()[0].is_in_use
        assert [facts.digest for facts in store.prune(0)] == [digest]

    def test_one_whose_interpreter_is_gone_is_named_and_pruned(self, store):
        digest, other = make(store), make(store, "other")
        assert store.broken() == []
        (store.root / digest[:16] / "venv" / "bin" / "python").unlink()
        assert store.broken() == [digest[:16]]
        store.prune(None)
        assert (store.broken(), [facts.digest for facts in store.facts()]) == ([], [other])

    def test_one_that_was_made_whole_meanwhile_stays(self, store, monkeypatch):
        digest = make(store)
        monkeypatch.setattr(store, "broken", lambda: [digest[:16]])
        store.prune(None)
        assert [facts.digest for facts in store.facts()] == [digest]

    def test_using_what_is_gone_is_told(self, store):
        with pytest.raises(EnvironmentMissingError), store.in_use(stack().digest):
            pytest.fail("it is not there")

    def test_only_the_long_unused_are_pruned(self, store):
        old, new = make(store, "1"), make(store, "2")
        store.keep_solution("a", old, "thing")
        store.keep_solution("b", new, "thing")
        stamp = time.time() - 10 * 86_400
        os.utime(store.root / address_of(old) / "used", (stamp, stamp))
        assert store.prune(None) == []
        assert store.prune(11) == []
        assert [facts.digest for facts in store.prune(9)] == [old]
        assert (store.solution("a"), store.solution("b")) == (None, new)

    def test_what_the_dead_left_goes_and_what_is_under_way_stays(self, store):
        address = address_of(stack().digest)
        half = store.root / address
        dead, gone = store.root / ".making-0123456789abcdef-x", store.root / ".gone-x"
        for folder in (half, dead, gone):
            (folder / "venv").mkdir(parents=True)
        with store.making(stack("2").digest, lambda: None), store.new_entry(stack("2").digest) as folder:
            store.prune(None)
            assert not half.exists()
            assert leftovers(store) == [folder.name]

    def test_a_sweep_of_another_process_is_not_in_the_way(self, store, monkeypatch):
        digest = make(store)
        rename = Path.rename

        def after_a_sweep(path: Path, target: Path) -> Path:
            EnvironmentStore(store.root.parent).sweep()
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", after_a_sweep)
        store.remove(digest)
        assert store.load(digest) is None
        assert leftovers(store) == []

    def test_what_another_process_removed_first_is_gone_too(self, store, monkeypatch):
        digest = make(store)
        open_lock = store._open_lock

        def after_a_removal(*arguments: str) -> int:
            EnvironmentStore(store.root.parent).remove(digest)
            return open_lock(*arguments)

        facts = store.facts()
        monkeypatch.setattr(store, "unused", lambda days: facts)
        monkeypatch.setattr(store, "_open_lock", after_a_removal)
        assert store.prune(0) == facts
        assert leftovers(store) == []


class TestRebuilding:
    @pytest.fixture
    def meanwhile(self, tmp_path, monkeypatch) -> Callable[[str], Environments]:
        """Environments where another process makes the same versions, while the recorded files are looked up."""

        def arrange(sha256: str) -> Environments:
            class Installer:
                is_offline = True

                def locate(self, files: list[object], interpreter: Interpreter) -> list[object]:
                    make(EnvironmentStore(tmp_path), sha256=sha256)
                    return files

                def install(self, *_: object) -> None:
                    pytest.fail("it is there already")

            monkeypatch.setattr(building.Interpreters, "find", lambda self, versions: PYTHON)
            monkeypatch.setattr(building.Builder, "_with_uv", lambda self, folder: Installer())
            return Environments(tmp_path)

        return arrange

    def test_other_files_that_another_process_installed_meanwhile_are_refused(self, meanwhile):
        with pytest.raises(DigestError, match="from other files than the recorded ones") as caught:
            meanwhile("b" * 64).rebuild(stack())
        assert address_of(stack().digest) in str(caught.value.hint)

    def test_the_same_files_that_another_process_installed_meanwhile_are_taken(self, meanwhile):
        assert meanwhile("a" * 64).rebuild(stack()).stack == stack()

    def test_the_same_files_that_another_process_installed_just_now_are_taken(self, meanwhile, tmp_path):
        environments, store = meanwhile("a" * 64), EnvironmentStore(tmp_path)
        digest = make(store)
        builder = building.Builder(tmp_path, store, lambda size: True, lambda text: None)
        assert builder.rebuild(stack()).digest == digest
        assert environments.list()[0].digest == digest


class TestBytecode:
    """Makers of environments share it with each other and with whoever removes what nobody needs."""

    FILES = (LockedFile("a", "1", "0" * 64, is_wheel=True),)

    @pytest.fixture(autouse=True)
    def compiler(self, monkeypatch):
        def write(interpreter: Interpreter, targets: list[Path], *_: object) -> None:
            for source in [path for target in targets for path in target.rglob("*.py")]:
                compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-311.pyc"
                compiled.parent.mkdir(exist_ok=True)
                compiled.write_bytes(source.name.encode())

        monkeypatch.setattr(bytecode, "_compile", write)

    def install(self, home: Path, name: str) -> Path:
        environment = home / name
        packages = bytecode.site_packages(environment, PYTHON)
        (packages / "a").mkdir(parents=True)
        (packages / "a-1.dist-info").mkdir()
        (packages / "a-1.dist-info" / "RECORD").write_text("a/m.py,,\na/n.py,,\n")
        for module in ("m", "n"):
            (packages / "a" / f"{module}.py").touch()
        bytecode.compile_all(environment, PYTHON, self.FILES, home / "cache" / "bytecode")
        return environment

    def kept(self, home: Path) -> Path:
        return home / "cache" / "bytecode" / "cpython-3.11" / self.FILES[0].sha256

    def meanwhile(self, monkeypatch, owner: object, name: str, act: Callable[[], object]) -> list[threading.Thread]:
        """Has `act` begin at the first call of the function, which goes on when `act` has ended or must wait."""
        real, others = getattr(owner, name), []

        def raced(source: Path, target: Path) -> object:
            if not others:
                others.append(threading.Thread(target=act))
                others[0].start()
                others[0].join(0.2)
            return real(source, target)

        monkeypatch.setattr(owner, name, raced)
        return others

    def test_two_makers_keep_one_wheel(self, tmp_path, monkeypatch):
        others = self.meanwhile(monkeypatch, Path, "rename", lambda: self.install(tmp_path, "second"))
        self.install(tmp_path, "first")
        others[0].join()
        assert len(list(self.kept(tmp_path).rglob("*.pyc"))) == 2
        assert [path.name for path in self.kept(tmp_path).parent.iterdir()] == [self.kept(tmp_path).name]

    @pytest.mark.parametrize("doing", ["keeping", "linking"])
    def test_it_is_not_pruned_while_a_maker_is_at_it(self, tmp_path, monkeypatch, doing):
        if doing == "linking":
            shutil.rmtree(self.install(tmp_path, "before"))
        others = self.meanwhile(monkeypatch, bytecode, "_link_or_copy", lambda: prune_bytecode(tmp_path))
        environment = self.install(tmp_path, "now")
        others[0].join()
        found = [path.stat().st_nlink for path in environment.rglob("*.pyc")]
        assert found == [2, 2]

    def test_what_a_dead_maker_left_goes_with_the_next_pruning(self, tmp_path):
        environment = self.install(tmp_path, "one")
        left = self.kept(tmp_path).with_name(".new-left")
        left.mkdir()
        (left / "m.pyc").hardlink_to(next(environment.rglob("*.pyc")))
        prune_bytecode(tmp_path)
        assert list(self.kept(tmp_path).parent.iterdir()) == [self.kept(tmp_path)]

    def test_an_empty_home_stays_empty(self, tmp_path):
        prune_bytecode(tmp_path)
        assert list(tmp_path.iterdir()) == []


class TestWarm:
    def test_a_solved_need_is_found_without_a_builder(self, tmp_path, monkeypatch):
        from mlmodelscope.provision.environments import building

        store, environments = EnvironmentStore(tmp_path), Environments(tmp_path)
        made = []

        class Builder:
            def __init__(self, *_: object, **__: object) -> None: ...

            def make(self, need: StackNeed) -> object:
                made.append(need)
                return store.load(make(store))

        monkeypatch.setattr(building, "Builder", Builder)
        first = environments.make(NEED)
        assert environments.make(NEED) == first
        assert len(made) == 1
        monkeypatch.setenv("UV_INDEX", "https://index.example/simple")
        assert environments.make(NEED) == first
        assert len(made) == 2
        environments.remove(first.digest)
        environments.make(NEED)
        assert len(made) == 3

    def test_who_may_not_build_takes_what_is_there_and_chooses_for_himself_alone(self, tmp_path, monkeypatch):
        from mlmodelscope.provision.environments import building

        store, environments = EnvironmentStore(tmp_path), Environments(tmp_path)
        made = []

        class Builder:
            def __init__(self, *_: object, may_build: bool) -> None:
                self.may_build = may_build

            def make(self, need: StackNeed) -> object:
                made.append(self.may_build)
                return store.load(make(store, "2" if self.may_build else "1"))

        monkeypatch.setattr(building, "Builder", Builder)
        wheels = environments.make(NEED, may_build=False)
        assert environments.make(NEED, may_build=False) == wheels
        built = environments.make(NEED)
        assert built != wheels
        assert environments.make(NEED, may_build=False) == built
        assert made == [False, True]

    def test_a_use_is_stamped(self, tmp_path):
        environments, store = Environments(tmp_path), EnvironmentStore(tmp_path)
        digest = make(store)
        os.utime(store.root / address_of(digest) / "used", (5, 5))
        environments.rebuild(stack())
        assert environments.list()[0].used_at > 5
