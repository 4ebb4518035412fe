"""Puts a report on disk, whole or not at all."""

from __future__ import annotations

import os
from contextlib import ExitStack
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from samebits.aside import write_aside
from samebits.reports import machine, markdown
from samebits.reports.names import PAGES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from samebits.document import Report


class Written(NamedTuple):
    """Where a report lies."""

    markdown: Path
    json: Path
    digests: dict[Path, str]
    """SHA-256 of everything that was written."""


def write(report: Report, folder: Path, locks: Mapping[str, str]) -> Written:
    """Write report.md, the models' pages, report.json and the locks; return the report's paths.

    ``locks`` is the text of every lock file by its path relative to ``folder``, as in
    :attr:`samebits.document.StackReport.lock`. Nothing is renamed into place before everything
    is written aside, so an error leaves the report of the run before. Last of all the pages of
    models are removed that this report does not have.
    """
    paths = folder / markdown.REPORT, folder / "report.json"
    texts = {**locks, **markdown.render(report)}
    files = {_inside(folder, name): text for name, text in texts.items()}
    files[paths[1]] = machine.render(report)
    _replace_all(files)
    _remove_other_pages(folder / PAGES, files)
    return Written(*paths, {path: sha256(t.encode()).hexdigest() for path, t in files.items()})


def _remove_other_pages(folder: Path, files: Collection[Path]) -> None:
    """Remove pages of earlier runs, which would read as if they were of this one."""
    for path in folder.glob("*.md"):
        if path not in files:
            path.unlink(missing_ok=True)


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        message = f"{name!r} would lie outside of the report's folder {folder}"
        raise ValueError(message)
    return folder / path


def _replace_all(files: Mapping[Path, str]) -> None:
    with ExitStack() as cleanup:
        aside = {}
        for path, text in files.items():
            aside[path] = write_aside(path, text)
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
