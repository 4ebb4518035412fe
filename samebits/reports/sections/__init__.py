"""Sections of report.md, one module each."""
