"""Turns a software stack's need into a virtual environment of its own: solved once, made once, found again."""

from mlmodelscope.provision.environments.making import Environments
from mlmodelscope.provision.environments.store import EnvironmentFacts

__all__ = ["EnvironmentFacts", "Environments"]
