"""Formats of a report besides Markdown."""
