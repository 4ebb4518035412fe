"""Puts a report on disk, whole or not at all."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, NamedTuple

from samebits.reports import machine, markdown
from samebits.reports.names import PAGES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from samebits.document import Report


class Written(NamedTuple):
    """Where a report lies."""

    markdown: Path
    json: Path


def write(report: Report, folder: Path, locks: Mapping[str, str]) -> Written:
    """Write report.md, the models' pages, report.json and the locks; return the report's paths.

    ``locks`` is the text of every lock file by its path relative to ``folder``, as in
    :attr:`samebits.document.StackReport.lock`. Nothing is renamed into place before everything
    is written aside, so an error leaves the report of the run before. Last of all the pages of
    models are removed that this report does not have.
    """
    written = Written(folder / markdown.REPORT, folder / "report.json")
    texts = {**locks, **markdown.render(report)}
    files = {_inside(folder, name): text for name, text in texts.items()}
    files[written.json] = machine.render(report)
    _replace_all(files)
    _remove_other_pages(folder / PAGES, files)
    return written


def _remove_other_pages(folder: Path, files: Collection[Path]) -> None:
    """Remove pages of earlier runs, which would read as if they were of this one."""
    for path in folder.glob("*.md"):
        if path not in files:
            path.unlink()


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        message = f"{name!r} would lie outside of the report's folder {folder}"
        raise ValueError(message)
    return folder / path


def _replace_all(files: Mapping[Path, str]) -> None:
    with ExitStack() as cleanup:
        aside = {path: _write_aside(path, text, cleanup) for path, text in files.items()}
        for path, temporary in aside.items():
            temporary.replace(path)
    for folder in {path.parent for path in files}:
        _sync_folder(folder)


def _write_aside(path: Path, text: str, cleanup: ExitStack) -> Path:
    """Write ``text`` to a new file beside ``path``, which ``cleanup`` removes if it is still there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        temporary = Path(file.name)
        cleanup.callback(temporary.unlink, missing_ok=True)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    # A temporary file is for its owner alone; a report is for whoever may read its folder.
    temporary.chmod(0o644)
    return temporary


def _sync_folder(folder: Path) -> None:
    """Make the renames last through a power cut, where folders can be opened at all."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
