"""Turns a plan's sources into verified files in the shared cache."""
