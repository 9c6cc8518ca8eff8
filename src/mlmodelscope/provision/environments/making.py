"""A need -> an environment that is found in a few milliseconds, or solved and made."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from mlmodelscope.core import settings
from mlmodelscope.core.stack import BuiltEnvironment, Stack, StackNeed
from mlmodelscope.core.value import digest_of
from mlmodelscope.provision.environments import caches
from mlmodelscope.provision.environments.caches import PackageCache
from mlmodelscope.provision.environments.indexes import configuration_digest
from mlmodelscope.provision.environments.store import EnvironmentFacts, EnvironmentStore, has_files_of

__all__ = ["Environments"]


class Environments:
    """The environments of one home. Any number of processes may use it at once; each environment is made once."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._store = EnvironmentStore(home)

    def make(
        self,
        need: StackNeed,
        *,
        may_install: Callable[[int], bool] = lambda size: True,
        may_build: bool = True,
        say: Callable[[str], None] = lambda text: None,
    ) -> BuiltEnvironment:
        """The environment for `need`: the one of last time, else solved and made.

        `may_install` is asked with about how many bytes it will take where that is more than a gigabyte. Without
        `may_build` no code of a package runs here: all come as wheels, or an environment is there already. `say` gets a
        line of progress at a time. Raises UnsatisfiableError (a conflict), EnvironmentMissingError (interpreter, uv,
        shared library), DownloadError, DigestError, StorageError, UsageError (too large and not allowed).
        """
        key = digest_of([need.digest, configuration_digest(settings.child_environment())])
        # wheels alone may make another choice, which is not for those who may build
        keys = [key] if may_build else [key, digest_of([key, "wheels"])]
        found = next(filter(None, map(self._solved, keys)), None)
        if found is None:
            from mlmodelscope.provision.environments.building import Builder

            found = Builder(self._home, self._store, may_install, say, may_build=may_build).make(need)
            self._store.keep_solution(keys[-1], found.digest, need.framework)
        self._store.touch(found.digest)
        return found

    def rebuild(
        self,
        stack: Stack,
        *,
        may_install: Callable[[int], bool] = lambda size: True,
        may_build: bool = True,
        say: Callable[[str], None] = lambda text: None,
    ) -> BuiltEnvironment:
        """The environment of a recorded stack: the same versions, from the very same files. Raises as `make` does."""
        found = self._store.load(stack.digest)
        if found is None or not has_files_of(found.stack, stack):
            from mlmodelscope.provision.environments.building import Builder

            found = Builder(self._home, self._store, may_install, say, may_build=may_build).rebuild(stack)
        self._store.touch(found.digest)
        return found

    def _solved(self, key: str) -> BuiltEnvironment | None:
        digest = self._store.solution(key)
        return None if digest is None else self._store.load(digest)

    def in_use(self, digest: str) -> AbstractContextManager[None]:
        """To be held while a worker runs in the environment: nobody removes it meanwhile."""
        return self._store.in_use(digest)

    def broken(self) -> list[str]:
        """The ids of those that cannot be used any more; `prune` removes them."""
        return self._store.broken()

    def list(self) -> list[EnvironmentFacts]:
        """Every environment that can be used, the last used first."""
        return self._store.facts()

    def find(self, prefix: str) -> BuiltEnvironment:
        """The environment whose id begins so. UnknownNameError where none does, UsageError where several do."""
        return self._store.find(prefix)

    def facts(self, prefix: str) -> EnvironmentFacts:
        """What is known of the environment whose id begins so."""
        return self._store.facts_of(prefix)

    def remove(self, prefix: str) -> EnvironmentFacts:
        """Removes one environment. UsageError while a worker uses it."""
        return self._store.remove(prefix)

    def unused(self, days: float) -> builtins.list[EnvironmentFacts]:
        """Those that nobody used for so many days and no worker uses now."""
        return self._store.unused(days)

    def prune(self, unused_days: float | None = None) -> builtins.list[EnvironmentFacts]:
        """Removes what is half-made, and those not used for so many days; never one that a worker uses."""
        removed = self._store.prune(unused_days)
        caches.prune_bytecode(self._home)
        return removed

    def package_cache(self) -> PackageCache:
        """What the package cache holds: environments share its files, and what was fetched once is in it."""
        return caches.measure_packages(self._home, settings.child_environment())

    def clear_packages(self) -> int:
        """Empties the package cache, unless it is the user's own, and says how many bytes that freed."""
        return caches.clear_packages(self._home, settings.child_environment())
