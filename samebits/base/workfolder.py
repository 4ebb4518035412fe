"""The work folder, beside matrix.yaml or samebits.lock."""

from __future__ import annotations

import contextlib
from pathlib import Path

WORK = ".samebits"
"""Locks, checkpoints and captures; safe to remove at any time."""


def keep_from_git(folder: Path) -> None:
    """Make git ignore a work folder: its tensors and logs would be committed by ``git add .``."""
    if folder.name != WORK:
        return  # the cache folder, or one that the user named
    # whatever needs the folder reports one that cannot be written
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", "utf-8")
