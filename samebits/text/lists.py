"""Lists as the command line takes them: items separated by commas."""

from __future__ import annotations


def comma_list(text: str) -> tuple[str, ...]:
    """Return the items of a list that commas separate, each once and without blanks around it."""
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
