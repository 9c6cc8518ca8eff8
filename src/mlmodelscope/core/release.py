"""The version of this package, in the one place that everything else reads."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
