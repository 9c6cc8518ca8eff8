"""Turns samples into tensors and tensors into answers, step by step."""
