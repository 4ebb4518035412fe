"""Lint: what a model's own code means in each transformers release, read and never run."""
