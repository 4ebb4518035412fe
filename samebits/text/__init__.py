"""Formatting of facts as text: markdown, numbers, names, and lines for a terminal."""
