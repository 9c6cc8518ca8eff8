"""Turns tensors into tensors: one file per framework, the portable layer (Python 3.6 syntax)."""
