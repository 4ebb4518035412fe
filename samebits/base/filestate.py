"""State of the files that a run depends on: size, mtime, ctime and inode.

The next run compares them to find out which files changed. ctime is included because no
program can set it, while mtime can be set.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

Identity = tuple[int, int, int, int]
"""Size in bytes, mtime in ns, ctime in ns, inode."""


class Dependencies:
    """The files that one run depends on, and why its results may not be reused."""

    def __init__(self) -> None:
        self.files: dict[str, Identity | None] = {}
        """Absolute path -> identity just before it was last read; None: it did not exist."""
        self.folders: dict[str, dict[str, Identity]] = {}
        """Absolute path -> relative path of every file below it -> identity."""
        self.unrepeatable: dict[str, str] = {}
        """Why a repeated run may have another result -> the cell concerned, '' if there is none."""

    def file(self, path: Path) -> None:
        """Record a file that is about to be read."""
        self.files[os.path.abspath(path)] = identity(path)  # noqa: PTH100  Path.absolute keeps ".."

    def folder(self, path: Path) -> None:
        """Record every file of a folder that is about to be read."""
        self.folders[os.path.abspath(path)] = identities(path)  # noqa: PTH100

    def mark_unrepeatable(self, reason: str, cell: str = "") -> None:
        """Record why a repeated run may have another result, and for which cell."""
        self.unrepeatable[reason] = cell


def identity(path: str | Path) -> Identity | None:
    """Return the state of a file; None if it does not exist."""
    try:
        # called for thousands of files, and a Path costs more than the call
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def identities(folder: str | Path) -> dict[str, Identity]:
    """Return the identity of every file below a folder by relative path; links are followed."""
    by_path = {}
    for path in below(os.fspath(folder)):
        if (current := identity(path)) is not None:
            by_path[os.path.relpath(path, folder)] = current
    return by_path


MAX_ENTRIES = 100_000
"""Files and folders that a checkpoint's folder may have; one with more is another folder."""


def below(folder: str) -> Iterator[str]:
    """Yield the path of every file below a folder, in order; links to folders are followed.

    Loaders of checkpoints follow such links, too. A link to a folder that holds the link, such as
    one to ``/``, is skipped.

    Raises:
        OSError: there are more than ``MAX_ENTRIES`` files and folders.

    """
    for number, entry in enumerate(_entries(folder, ())):
        if number >= MAX_ENTRIES:
            msg = f"it has more than {MAX_ENTRIES:,} files and folders, which no checkpoint has"
            raise OSError(errno.E2BIG, msg, folder)
        if not entry.is_dir():
            yield entry.path


def _entries(folder: str, above: tuple[str, ...]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder, files first, and those of the folders in it."""
    real = os.path.realpath(folder)
    if above and (real in above or os.path.commonpath([real, above[0]]) == real):
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    yield from (entry for entry in entries if not entry.is_dir())
    for entry in entries:
        if entry.is_dir():
            yield entry
            yield from _entries(entry.path, (*above, real))


def changed(
    files: dict[str, Identity | None], folders: dict[str, dict[str, Identity]]
) -> str | None:
    """Return the path of the first file or folder that changed since it was recorded, or None."""
    for path, recorded in files.items():
        if identity(path) != recorded:
            return path
    return next((path for path, recorded in folders.items() if identities(path) != recorded), None)


def is_older(path: Path, cutoff: float) -> bool:
    """Return True if a file exists and was last written before ``cutoff``, in seconds."""
    try:
        return path.stat().st_mtime < cutoff
    except OSError:  # removed by another run just now
        return False
