"""Comparison of two captures, signal by signal."""
