"""Markdown, numbers and terminal text: how facts are written."""
