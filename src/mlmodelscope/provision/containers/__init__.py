"""Turns the name of a container image into facts about it and into a container that runs, behind any Docker API."""

from mlmodelscope.provision.containers.container import Container, Mount
from mlmodelscope.provision.containers.engine import Engine, find_engine
from mlmodelscope.provision.containers.image import ImageFacts, Interpreter, image_for

__all__ = ["Container", "Engine", "ImageFacts", "Interpreter", "Mount", "find_engine", "image_for"]
