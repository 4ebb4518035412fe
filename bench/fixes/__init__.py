"""Recall on fix commits of transformers that were drawn at random: ``nox -s fixes``."""
