"""Protection of the user's files: a report replaces no file that samebits did not write.

A page of samebits is recognised by its first lines, so it remains ours without report.json and with
other line endings. Locks and capsules are ours in a folder whose report.json or report.md is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from samebits.base.errors import SamebitsError, shown
from samebits.matrix.plan import Plan
from samebits.reports import packed
from samebits.reports.details import may_have
from samebits.reports.formats.registry import DEFAULT, FORMATS, Format, chosen
from samebits.reports.html.addresses import FOLDER, HOME, MARK
from samebits.text.names import PAGES, capsule_path

REPORT = "report.md"
FIRST_PAGES = (REPORT, HOME)
"""Files that every report has by default, and whose digests depend on the time of the run."""
_TITLE = "# samebits: "
_PART_OF = "Part of the [report]("
_HEAD_BYTES = 4096
"""Bytes that hold the first lines of a page."""
_MAX_NAMED = 5


class ReportsError(SamebitsError):
    """A report would replace a file of the user; no file was written."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        listed = ", ".join(shown(name) for name in names[:_MAX_NAMED])
        more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
        pronoun, names_phrase = ("it", "its name") if len(names) == 1 else ("them", "their names")
        super().__init__(
            f"{shown(str(folder))} holds {listed}{more}, which samebits did not write: the report "
            f"needs {names_phrase}.\nMove {pronoun}, or name another folder with --reports."
        )


def check(folder: Path, plan: Plan, formats: Iterable[str] = DEFAULT) -> None:
    """Check that no file of the user has a name that the report of a plan may need.

    Raises:
        ReportsError: a file has such a name.

    """
    cells = {(cell.model, cell.stack) for cell in plan.cells}
    names = [
        REPORT,
        packed.NAME,
        packed.COMPRESSED,
        *may_have(),
        *(format.main for format in chosen(formats)),
    ]
    names += [f"locks/{stack}.txt" for stack in plan.stacks]
    names += [
        format.page(model) for format in chosen(formats) if format.page for model in plan.models
    ]
    for model, stack in sorted(cells):
        capsule = folder / capsule_path(model, stack)
        names += [
            path.relative_to(folder).as_posix() for path in capsule.rglob("*") if path.is_file()
        ]
    refuse_foreign(folder, names)


def refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Check that none of these files was written by the user.

    Raises:
        ReportsError: a file was.

    """
    is_ours = bool(earlier_files(folder)) or _has_first_line(folder / REPORT, _TITLE)
    foreign = [name for name in sorted(names) if not _is_replaceable(folder / name, name, is_ours)]
    if foreign:
        raise ReportsError(folder, foreign)


def earlier_files(folder: Path) -> dict[str, str]:
    """Return the files of the earlier report with their digests; none if it cannot be read."""
    try:
        content = json.loads(packed.content(folder / packed.NAME))
        files = content["files"] if {"samebits", "schema_version"} <= content.keys() else {}
        return {name: str(digest) for name, digest in files.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def has(folder: Path, format: Format) -> bool:
    """Return True if a folder has a format of a report."""
    return _has_first_line(folder / format.main, format.mark)


def has_single_file(folder: Path) -> bool:
    """Return True if report.html holds all its pages."""
    return _has_first_line(folder / HOME, MARK) and not (folder / FOLDER).is_dir()


def remove_first_pages(folder: Path, files: Collection[Path]) -> None:
    """Remove report.md and report.html of an earlier run, unless they were written now.

    Their digests are in no report.json, so they are recognised by their first lines.
    """
    for format in FORMATS:
        path = folder / format.main
        if format.main in FIRST_PAGES and path not in files and has(folder, format):
            path.unlink()


def _is_replaceable(path: Path, name: str, is_ours: bool) -> bool:
    """Return True if a file does not exist or is ours; ``is_ours`` is True in a folder of ours."""
    if not path.exists():
        return True
    mark = next((format.mark for format in FORMATS if format.main == name), "")
    if mark:
        return _has_first_line(path, mark)
    if name in may_have() or name.startswith(f"{PAGES}/"):
        return _has_first_line(path, _PART_OF)
    if name.startswith(f"{FOLDER}/") and name.endswith(".html"):
        return _has_first_line(path, MARK)
    return is_ours


def _has_first_line(path: Path, prefix: str) -> bool:
    """Return True if one of the first five lines of a file begins with ``prefix``."""
    try:
        with path.open("rb") as file:
            lines = file.read(_HEAD_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    return any(line.startswith(prefix) for line in lines[:5])
