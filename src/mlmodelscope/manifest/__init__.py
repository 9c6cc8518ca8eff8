"""Turns manifest text into frozen values, with the position of every problem."""
