"""Verdicts on cells, the place where a difference begins, and the exit code."""
