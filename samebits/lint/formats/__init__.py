"""Formats of a lint report: text, JSON, annotations for GitHub."""
