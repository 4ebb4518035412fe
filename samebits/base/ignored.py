"""The work folder, which stands beside matrix.yaml or samebits.lock and is no part of a project."""

from __future__ import annotations

import contextlib
from pathlib import Path

_NAME = ".samebits"


def keep_from_git(folder: Path) -> None:
    """Make git ignore a work folder: its tensors and logs would be committed by ``git add .``."""
    if folder.name != _NAME:
        return  # the cache folder, or one that the user named
    # a folder that cannot be written is named by what needs it
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", "utf-8")
