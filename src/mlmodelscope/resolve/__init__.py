"""Turns a request and the facts of this machine into plans with everything pinned."""
