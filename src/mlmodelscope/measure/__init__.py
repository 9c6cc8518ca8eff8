"""Turns a scenario and a prepared pipeline into raw measurements."""
