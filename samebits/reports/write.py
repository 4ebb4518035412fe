"""Puts a report on disk, whole or not at all."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from samebits.base.atomic import write_aside
from samebits.reports import document, owned
from samebits.reports import json as reports_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from samebits.records.report import Report


class Written(NamedTuple):
    """Where a report lies."""

    markdown: Path
    json: Path
    digests: dict[Path, str]
    """SHA-256 of everything that was written."""


def write(report: Report, folder: Path, beside: Mapping[str, str | bytes]) -> Written:
    """Write report.md, the models' pages, report.json, locks and capsules; return the paths.

    ``beside`` is the content of every lock file, and of every file of a capsule, by its path
    relative to ``folder``, as in :attr:`samebits.records.report.StackReport.lock`. Nothing is renamed
    into place before everything is written aside, so an error leaves the report of the run before.
    What an earlier report left and this one does not have is removed, and nothing else is: its
    report.json, which is replaced last, says what that is.

    Raises:
        ReportsError: it would replace a file that samebits did not write.

    """
    paths = folder / document.REPORT, folder / owned.DATA
    contents: dict[str, str | bytes] = {**beside, **document.render(report)}
    files = {_inside(folder, name): content for name, content in contents.items()}
    owned.refuse(folder, [*contents, owned.DATA])
    # report.md is in every report, and its digest tells when it was written
    told = {n: _digest(content) for n, content in contents.items() if n != document.REPORT}
    files[paths[1]] = reports_json.render(report.model_copy(update={"files": told}))
    with _aside(files) as aside:
        for path in files.keys() - {paths[1]}:
            aside[path].replace(path)
        _remove_what_was_left(folder, files)
        aside[paths[1]].replace(paths[1])
    for parent in {path.parent for path in files}:
        _sync_folder(parent)
    return Written(*paths, {path: _digest(content) for path, content in files.items()})


def _digest(content: str | bytes) -> str:
    return sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def _remove_what_was_left(folder: Path, files: Collection[Path]) -> None:
    """Remove what an earlier report wrote, unless it is written anew or has been edited since.

    A page that stays would read as if it were of this run.
    """
    whole = folder.resolve()
    for name, digest in owned.earlier(folder).items():
        path = folder / name
        if path in files or not path.resolve().is_relative_to(whole):
            continue  # what a link leads to is not ours
        with suppress(OSError):  # it is gone, or no file
            if _digest(path.read_bytes()) == digest:
                path.unlink()
        for parent in path.relative_to(folder).parents[:-1]:
            with suppress(OSError):  # something is left in it
                (folder / parent).rmdir()


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        message = f"{name!r} would lie outside of the report's folder {folder}"
        raise ValueError(message)
    return folder / path


@contextmanager
def _aside(files: Mapping[Path, str | bytes]) -> Iterator[dict[Path, Path]]:
    """Write every file aside, and give where; what is not renamed by then goes at the end."""
    with ExitStack() as cleanup:
        aside = {}
        for path, content in files.items():
            aside[path] = write_aside(path, content)
            cleanup.callback(aside[path].unlink, missing_ok=True)
        yield aside


def _sync_folder(folder: Path) -> None:
    """Make the renames last through a power cut, where folders can be opened at all."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
