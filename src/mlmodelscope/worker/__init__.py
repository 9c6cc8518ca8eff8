"""Runs the stages of one launch in a child process."""
