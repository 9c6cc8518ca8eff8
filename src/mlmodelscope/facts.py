"""This machine -> what a plan must know of it: its hardware, and the frameworks registered and installed."""

from __future__ import annotations

from mlmodelscope.core.errors import UnknownNameError
from mlmodelscope.core.plugins import installed_version, predictors
from mlmodelscope.core.release import VERSION
from mlmodelscope.resolve.plans import Facts, InstalledFramework

__all__ = ["frameworks", "read_facts"]


def read_facts() -> Facts:
    """This machine: its hardware and the frameworks that are registered and installed."""
    from mlmodelscope.measure.system import read_system

    registry = predictors()
    system = read_system()

    def canonical(name: str) -> str | None:
        try:
            return registry.canonical(name)
        except UnknownNameError:
            return None

    found = {framework.name: framework for framework in frameworks()}
    return Facts(system=system, frameworks=found, canonical=canonical, usable_cpus=system.usable_cpus)


def frameworks() -> list[InstalledFramework]:
    """Every registered predictor with the version of its framework that is installed here; imports no framework."""
    registry = predictors()
    found: list[InstalledFramework] = []
    for name in registry.names():
        predictor = registry.get(name)
        # a predictor without a framework of its own (null) is as old as we are
        installed = installed_version(predictor) if predictor.packages else ("mlmodelscope", VERSION)
        found.append(
            InstalledFramework(
                name=name,
                entry_point=f"{predictor.__module__}:{predictor.__qualname__}",
                distribution=installed[0] if installed else None,
                version=installed[1] if installed else None,
                install_hint="let it have an environment of its own: --environment venv",
                takes_address=bool(getattr(predictor, "takes_address", False)),
            )
        )
    return found
