"""Blocks of a page about one cell."""
