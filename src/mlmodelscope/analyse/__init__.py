"""Turns rows into rows: statistics, accuracy, comparison; pure."""
