"""Which files did a run go by, each as it was when the run looked at it?

The next run compares: a file is the same if size, inode and both times are. The time of the last
change of the inode is among them because no program can set it, as one can that of its content.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Identity = tuple[int, int, int, int]
"""Size in bytes, times of the content's and the inode's last change in ns, inode."""


class Ledger:
    """The files that one run goes by, and why another run may not go by them."""

    def __init__(self) -> None:
        self.files: dict[str, Identity | None] = {}
        """Absolute path -> identity just before it was read last; None: it was not there."""
        self.folders: dict[str, dict[str, Identity]] = {}
        """Absolute path -> relative path of every file below -> identity."""
        self.unsettled: dict[str, str] = {}
        """Why the same run again may end otherwise -> the cell that it is about, '' if it is none."""

    def file(self, path: Path) -> None:
        """Note a file that is about to be read."""
        self.files[os.path.abspath(path)] = identity(path)  # noqa: PTH100  Path has no such thing

    def folder(self, path: Path) -> None:
        """Note every file of a folder that is about to be read."""
        self.folders[os.path.abspath(path)] = identities(path)  # noqa: PTH100

    def unsettle(self, reason: str, cell: str = "") -> None:
        """Say why the same run again may end otherwise, and for which cell."""
        self.unsettled[reason] = cell


def identity(path: str | Path) -> Identity | None:
    """Return what tells one state of a file from another; None if it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116  thousands are asked, and a Path costs more than the call
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def identities(folder: str | Path) -> dict[str, Identity]:
    """Return the identity of every file below a folder, links followed, by its relative path."""
    found = {}
    for path in below(os.fspath(folder)):
        if (known := identity(path)) is not None:
            found[os.path.relpath(path, folder)] = known
    return found


def below(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the path of every file below a folder, in order; links to folders are followed.

    A loader follows them, too. One that leads back to a folder that it lies in is left out.
    """
    real = os.path.realpath(folder)
    if real in above:
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir():
            yield entry.path
    for entry in entries:
        if entry.is_dir():
            yield from below(entry.path, (*above, real))


def changed(
    files: dict[str, Identity | None], folders: dict[str, dict[str, Identity]]
) -> str | None:
    """Return the path of the first file or folder that is not as it was noted; None: all are."""
    for path, known in files.items():
        if identity(path) != known:
            return path
    return next((path for path, known in folders.items() if identities(path) != known), None)
