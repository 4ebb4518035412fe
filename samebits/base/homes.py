"""Paths that a user types with ``~``."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(text: str) -> Path:
    """Return a path with ``~`` expanded, or as it is where there is no home folder."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  Path.expanduser raises without a home
