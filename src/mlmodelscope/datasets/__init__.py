"""Turns a data set manifest into samples, one at a time."""
