"""The folder of environments: what is whole, found, used, removed. Entries are made by hand."""

import json
import os
import time
from pathlib import Path

import pytest

from mlmodelscope.core.errors import EnvironmentMissingError, StorageError, UnknownNameError, UsageError
from mlmodelscope.core.stack import PinnedPackage, Stack, StackNeed
from mlmodelscope.provision.environments import Environments
from mlmodelscope.provision.environments.store import EnvironmentStore, address_of

NEED = StackNeed(framework="thing", distribution="thing", python=("3.11",), requirements=("thing==1",))


def stack(version: str = "1") -> Stack:
    return Stack(
        python="3.11.7",
        implementation="CPython",
        platform="linux-x86_64",
        packages=(PinnedPackage(name="thing", version=version, sha256="a" * 64),),
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


def make(store: EnvironmentStore, version: str = "1", **options: Path) -> str:
    wanted = stack(version)
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
