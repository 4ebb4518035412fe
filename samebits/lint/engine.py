"""Lint a set of paths: read the files, run the rules, drop what a comment or an option ignores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from samebits.lint.guards import behind_guards, lines_behind_guards, share_flags
from samebits.lint.problem import Problem
from samebits.lint.project import Project
from samebits.lint.registry import rules
from samebits.lint.releases import Releases
from samebits.lint.source import Source, UnreadableError, read

_SKIPPED = {"__pycache__", "node_modules", "site-packages"}

UNREADABLE = "unreadable"
"""The code of a problem that is a file which cannot be read."""


class Result(NamedTuple):
    """What lint found in some files."""

    problems: list[Problem]
    """By file, place and code."""
    sources: dict[Path, Source]
    """Every file that could be read."""


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files of these paths, and the Python files of folders; hidden ones are left out.

    Raises:
        FileNotFoundError: a path does not exist.

    """
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(str(path))
        if not path.is_dir():
            yield path
            continue
        for file in sorted(path.rglob("*.py")):
            parts = file.relative_to(path).parts
            hidden = any(part.startswith(".") or part in _SKIPPED for part in parts)
            if not hidden and file.is_file():
                yield file


def lint(files: Iterable[Path], say: Callable[[str], None] = lambda _: None) -> Result:
    """Lint files as one project: their classes may derive from each other.

    ``say`` gets the name of each step that begins.
    """
    sources, unread = _read(files, say)
    unique: dict[tuple[object, ...], Problem] = {}
    for problem in _problems(sources, say):
        unique.setdefault((problem.code, *_place(problem)), problem)
    ordered = sorted([*unread, *unique.values()], key=lambda p: (*_place(p), p.code))
    return Result(ordered, sources)


def _read(
    files: Iterable[Path], say: Callable[[str], None]
) -> tuple[dict[Path, Source], list[Problem]]:
    """Return the files that can be read, and a problem for each of the rest."""
    sources: dict[Path, Source] = {}
    unread: list[Problem] = []
    for path in dict.fromkeys(files):
        say(f"reading {path.name}")
        try:
            sources[path] = Source(path, read(path))
        except UnreadableError as error:
            unread.append(_unreadable(path, str(error), error.line, error.column))
        except OSError as error:
            unread.append(_unreadable(path, f"not read: {error.strerror or error}"))
    return sources, unread


def _problems(sources: dict[Path, Source], say: Callable[[str], None]) -> Iterator[Problem]:
    """Yield what the rules report, in their order, and no comment ignores.

    A file that is imported, or a function that is called, only where the code asks for the release is the author's
    answer to it.
    """
    project = Project(sources.values())
    share_flags(sources)
    guarded, lines = behind_guards(sources), lines_behind_guards(sources)
    for rule in rules():
        say(f"looking for {rule.code}, {rule.page.name}")
        for problem in rule.problems(project):
            answered = problem.path in guarded or any(
                problem.line in each for each in lines.get(problem.path, ())
            )
            if not answered and not _ignored(sources[problem.path], problem):
                yield problem


def _place(problem: Problem) -> tuple[str, int, int]:
    return str(problem.path), problem.line, problem.column


def _ignored(source: Source, problem: Problem) -> bool:
    """Return True if a comment on the problem's first or last line ignores its code."""
    for line in {problem.line, problem.end_line} & source.ignored.keys():
        codes = source.ignored[line]
        if codes is None or selected(problem.code, codes):
            return True
    return False


def selected(code: str, prefixes: Iterable[str]) -> bool:
    """Return True if a code begins with one of the prefixes: ``SB3`` selects SB301."""
    return any(prefix and code.startswith(prefix) for prefix in prefixes)


def _unreadable(path: Path, message: str, line: int = 1, column: int = 1) -> Problem:
    line, column = max(line, 1), max(column, 1)
    return Problem(UNREADABLE, path, line, column, line, column, message, Releases(()), "")
