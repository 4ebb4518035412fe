"""Toy: how a stack adds up a few numbers."""
