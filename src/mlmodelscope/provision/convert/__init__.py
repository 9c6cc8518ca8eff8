"""Published weights to a file that a framework runs: the converters, by name."""

from mlmodelscope.provision.convert.registry import CONVERTERS, Converter, converter

__all__ = ["CONVERTERS", "Converter", "converter"]
