"""Turns what happened into spans."""
