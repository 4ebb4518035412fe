"""Moments of a run, for readers."""

from __future__ import annotations

from datetime import datetime

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def moment(text: str) -> str:
    """Return a moment of RFC 3339 in UTC as ``23 Nov 2026 09:06 UTC``; any other text as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time.day} {_MONTHS[time.month - 1]} {time.year} {time:%H:%M} UTC"
