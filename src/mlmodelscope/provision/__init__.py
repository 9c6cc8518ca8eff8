"""Turns a plan's sources into verified files in the shared cache."""

from mlmodelscope.provision.assets import Assets, AssetState
from mlmodelscope.provision.progress import NoProgress, Progress

__all__ = ["AssetState", "Assets", "NoProgress", "Progress"]
