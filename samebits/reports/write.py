"""Writes a report to disk: all of it, or no part of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from samebits.records.report import Report
from samebits.reports import owned, packed
from samebits.reports.formats.registry import DEFAULT, chosen, render
from samebits.reports.json import render as render_json
from samebits.reports.json import text_of
from samebits_wire.atomic import write_temporary


class Written(NamedTuple):
    """The paths of a written report."""

    opened: tuple[Path, ...]
    """The file to open of each format; report.json where no other format was chosen."""
    json: Path
    """report.json, or report.json.xz."""
    digests: dict[Path, str]
    """SHA-256 of every file that was written."""


def write(
    report: Report,
    folder: Path,
    attachments: Mapping[str, str | bytes],
    formats: Collection[str] = DEFAULT,
    document: Mapping[str, Any] | None = None,
    *,
    single_file: bool = False,
    compress: bool = False,
) -> Written:
    """Write report.json, the files of the formats, locks and capsules; return the paths.

    ``single_file`` makes report.html hold all its pages and all that they load; ``compress`` writes
    report.json.xz in place of report.json.

    ``attachments`` maps the path of every lock file, and of every file of a capsule, to its
    content. The paths are relative to ``folder``, as in
    :attr:`samebits.records.report.StackReport.lock`. All files are written under temporary names
    before any of them is renamed, so an error leaves the report of the previous run. Files of the
    previous report that this one lacks are removed, and no others: its report.json, which is
    replaced last, lists them. ``document`` is the content of a report.json that was read; all of it
    but the list of files is written as it is.

    Raises:
        ReportsError: the report would replace a file that samebits did not write.

    """
    paths = [_inside(folder, format.main) for format in chosen(formats)]
    name, other = (packed.NAME, packed.COMPRESSED)[:: -1 if compress else 1]
    data = folder / name
    made = render(report, formats, name, single_file=single_file)
    contents: dict[str, str | bytes] = {**attachments, **made}
    files = {_inside(folder, name): content for name, content in contents.items()}
    owned.refuse_foreign(folder, [*contents, name, other])
    # digests of the first pages depend on the time of the run
    names = sorted(contents.keys() - set(owned.FIRST_PAGES))
    digests = {name: _digest(contents[name]) for name in names}
    text = (
        render_json(report.model_copy(update={"files": digests}))
        if document is None
        else text_of({**document, "files": digests})
    )
    files[data] = packed.compressed(text) if compress else text
    fleeting = {_inside(folder, name) for name in made} - set(paths)
    with _temporary_files(files, fleeting) as temporary:
        for path in files.keys() - {data}:
            temporary[path].replace(path)
        _remove_leftovers(folder, files)
        owned.remove_first_pages(folder, files)
        temporary[data].replace(data)
        (folder / other).unlink(missing_ok=True)
    for parent in {path.parent for path in files}:
        _sync_folder(parent)
    return Written(
        tuple(paths) or (data,), data, {path: _digest(content) for path, content in files.items()}
    )


def _digest(content: str | bytes) -> str:
    return sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def _remove_leftovers(folder: Path, files: Collection[Path]) -> None:
    """Remove what an earlier report wrote, unless it was written again now or edited since.

    A page that remained would read as if it belonged to this run.
    """
    root = folder.resolve()
    for name, digest in owned.earlier_files(folder).items():
        path = folder / name
        if path in files or not path.resolve().is_relative_to(root):
            continue  # the target of a link is not ours
        with suppress(OSError):  # it does not exist, or is no file
            if _digest(path.read_bytes()) == digest:
                path.unlink()
        for parent in path.relative_to(folder).parents[:-1]:
            with suppress(OSError):  # it is not empty
                (folder / parent).rmdir()


def _inside(folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        message = f"{name!r} would lie outside of the report's folder {folder}"
        raise ValueError(message)
    return folder / path


@contextmanager
def _temporary_files(
    files: Mapping[Path, str | bytes], fleeting: Collection[Path]
) -> Iterator[dict[Path, Path]]:
    """Write every file under a temporary name; at the end remove those that were not renamed.

    A power cut may empty the ``fleeting`` files, which `samebits report` makes again from report.json.
    """
    with ExitStack() as cleanup:
        temporary = {}
        for path, content in files.items():
            # fsync of each of hundreds of pages takes minutes on a busy disk
            temporary[path] = write_temporary(path, content, lasting=path not in fleeting)
            cleanup.callback(temporary[path].unlink, missing_ok=True)
        yield temporary


def _sync_folder(folder: Path) -> None:
    """Make renames survive a power cut."""
    descriptor = os.open(folder, os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
