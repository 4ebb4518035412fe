"""Verdicts, where a difference begins, and the exit code."""
