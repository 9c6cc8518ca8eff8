"""Stored evaluations -> a report to hand on: one HTML page, Markdown or CSV; pure."""
