"""Capsules: differences reduced to folders that reproduce them with one script per stack."""
