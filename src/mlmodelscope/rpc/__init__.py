"""Turns calls of a predictor into messages and back, so that a program in any language can be one."""
