"""Turns records into history."""
