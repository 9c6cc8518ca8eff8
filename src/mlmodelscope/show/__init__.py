"""Turns rows into text for people; pure."""
