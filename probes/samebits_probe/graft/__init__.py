"""Pieces of the reference put into a candidate."""
