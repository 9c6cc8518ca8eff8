"""Turns published weights into files a framework can run, once, without running foreign code."""
