"""Processes, files and failures."""
