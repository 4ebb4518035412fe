"""Puts a report on disk, whole or not at all."""

from __future__ import annotations

import os
from contextlib import ExitStack
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from samebits.aside import write_aside
from samebits.reports import machine, markdown
from samebits.reports.names import CAPSULES, PAGES
from samebits.reports.usage import PAGE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from samebits.document import Report


class Written(NamedTuple):
    """Where a report lies."""

    markdown: Path
    json: Path
    digests: dict[Path, str]
    """SHA-256 of everything that was written."""


def write(report: Report, folder: Path, beside: Mapping[str, str | bytes]) -> Written:
    """Write report.md, the models' pages, report.json, locks and capsules; return the paths.

    ``beside`` is the content of every lock file, and of every file of a capsule, by its path
    relative to ``folder``, as in :attr:`samebits.document.StackReport.lock`. Nothing is renamed
    into place before everything is written aside, so an error leaves the report of the run before.
    Last of all the pages and the capsules are removed that this report does not have.
    """
    paths = folder / markdown.REPORT, folder / "report.json"
    contents: dict[str, str | bytes] = {**beside, **markdown.render(report)}
    files = {_inside(folder, name): content for name, content in contents.items()}
    files[paths[1]] = machine.render(report)
    _replace_all(files)
    _remove_other_pages([folder / PAGE, *(folder / PAGES).glob("*.md")], files)
    _remove_other_files(folder / CAPSULES, files)
    return Written(*paths, {path: _digest(content) for path, content in files.items()})


def _digest(content: str | bytes) -> str:
    return sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def _remove_other_pages(pages: Iterable[Path], files: Collection[Path]) -> None:
    """Remove pages of earlier runs, which would read as if they were of this one."""
    for path in pages:
        if path not in files:
            path.unlink(missing_ok=True)


def _remove_other_files(folder: Path, files: Collection[Path]) -> None:
    """Remove files of earlier capsules, and the folders that this leaves empty."""
    if folder.is_symlink():
        return  # what it leads to is not ours
    for path in sorted(folder.rglob("*"), reverse=True):  # what is inside a folder comes first
        if path.is_symlink() or not path.is_dir():
            if path not in files:
                path.unlink()
        elif not any(path.iterdir()):
            path.rmdir()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        message = f"{name!r} would lie outside of the report's folder {folder}"
        raise ValueError(message)
    return folder / path


def _replace_all(files: Mapping[Path, str | bytes]) -> None:
    with ExitStack() as cleanup:
        aside = {}
        for path, content in files.items():
            aside[path] = write_aside(path, content)
            cleanup.callback(aside[path].unlink, missing_ok=True)
        for path, temporary in aside.items():
            temporary.replace(path)
    for folder in {path.parent for path in files}:
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    """Make the renames last through a power cut, where folders can be opened at all."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
