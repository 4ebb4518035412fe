"""Repairs: the edits of problems applied to a file's text, until nothing is left to repair."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path

from samebits.lint.engine import lint
from samebits.lint.problem import Edit, Problem
from samebits.lint.source import Source, UnreadableError


def repaired(source: Source, problems: Iterable[Problem]) -> tuple[str, int]:
    """Return a file's text with the edits of its problems, and how many problems they repair.

    All edits of a problem are applied, or none. Of problems whose edits overlap, the first wins.
    The text is the old one if the new one is no Python.
    """
    taken: list[Edit] = []
    count = 0
    for problem in problems:
        edits = [e for e in problem.edits if e not in taken or e.start != e.end]
        if not problem.edits or any(_overlap(new, old) for new in edits for old in taken):
            continue
        taken += edits
        count += 1
    text = source.text
    for edit in sorted(taken, key=lambda e: (e.start, e.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    try:
        Source(source.path, text.encode("utf-8"))
    except (UnreadableError, UnicodeError):
        return source.text, 0
    return text, count


def _overlap(new: Edit, old: Edit) -> bool:
    """Return True if two edits touch the same characters, or the same place between characters."""
    return (new.start < old.end and old.start < new.end) or new.start == old.start


def fix_files(
    files: list[Path], wanted: Callable[[Problem], bool], *, write: bool
) -> tuple[int, list[str]]:
    """Repair files; return how many problems were repaired, and the diff, line by line.

    A file that is not UTF-8, or that starts with a byte order mark, is left alone.
    """
    total = 0
    lines: list[str] = []
    result = lint(files)
    for path, source in result.sources.items():
        problems = [p for p in result.problems if p.path == path and wanted(p)]
        if source.encoding != "utf-8":
            continue
        text, count = repaired(source, problems)
        if not count:
            continue
        total += count
        lines += difflib.unified_diff(
            source.text.splitlines(keepends=True),
            text.splitlines(keepends=True),
            f"a/{path}",
            f"b/{path}",
        )
        if write:
            path.write_bytes(text.encode("utf-8"))
    return total, lines
