"""The command ``samebits lint``. It imports nothing but the standard library, and starts at once.

Exit codes: 0, nothing was found; 1, something was found, or a file could not be read; 2, a mistake
on the command line, or no Python file.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from samebits.base.parser import Parser
from samebits.lint.bounds import bound_of, bounds
from samebits.lint.engine import UNREADABLE, lint, python_files, selected
from samebits.lint.fix import fix_files
from samebits.lint.problem import Problem
from samebits.lint.registry import rules
from samebits.lint.releases import NEWEST, Range, scope

FORMATS = ("text", "json", "github")
_PATIENCE = 5.0
"""Seconds between two lines about how far a run is."""
_ROUNDS = 5
"""How often a file is repaired again: a repair can make room for another one."""


def main(arguments: Sequence[str]) -> int:
    """Run the command with what follows ``lint``; print, and return the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        files = list(python_files(options.paths))
    except FileNotFoundError as error:
        parser.error(f"no such file or folder: {error}")
    if not files:
        parser.error(f"no Python file in {', '.join(map(str, options.paths))}")
    for code in [*options.select, *options.ignore]:
        if not any(rule.code.startswith(code) for rule in rules()):
            parser.error(f"no rule has the code {code}: {_codes()}")

    try:
        releases = scope(options.first, options.last)
    except ValueError as error:
        parser.error(f"--from and --to: {error}")

    bound = _no_bound if options.first or options.last else _bound
    for note in () if bound is _no_bound else bounds(files):
        sys.stderr.write(
            f"{note.package} requires transformers {note.text}: only these releases count (--from and "
            "--to name others)\n"
        )

    def wanted(problem: Problem) -> bool:
        if problem.code == UNREADABLE:
            return True
        if not problem.releases.within(bound(problem.path)).meet(releases):
            return False
        chosen = not options.select or selected(problem.code, options.select)
        return chosen and not selected(problem.code, options.ignore)

    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if options.diff:
        _, lines = fix_files(files, wanted, write=False)
        sys.stdout.writelines(line if line.endswith("\n") else f"{line}\n" for line in lines)
        return 1 if lines else 0
    if options.fix:
        repaired = _repair(files, wanted)
        sys.stderr.write(f"{repaired} repaired\n")
    every = lint(files, _Clock(len(files)).say).problems
    problems = [
        p._replace(path=_shown(p.path), releases=p.releases.within(bound(p.path)))
        for p in every
        if wanted(p)
    ]
    output = import_module(f"samebits.lint.formats.{options.format}").render(problems)
    if output:
        sys.stdout.write(f"{output}\n")
    return 1 if problems else 0


def _no_bound(_path: Path) -> Range:
    return Range((0, 0), NEWEST)


def _bound(path: Path) -> Range:
    """Return the releases that the package of a file requires."""
    bound = bound_of(path.absolute().parent)
    return bound.releases if bound else _no_bound(path)


class _Clock:
    """Says on standard error how far a long run is: a large package takes a minute."""

    def __init__(self, n_files: int) -> None:
        self._n_files = n_files
        self._next = time.monotonic() + _PATIENCE

    def say(self, what: str) -> None:
        """Print a line about the step that begins, if enough time has gone since the last one."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PATIENCE
            sys.stderr.write(f"{self._n_files:,} files: {what} …\n")
            sys.stderr.flush()


def _repair(files: list[Path], wanted: Callable[[Problem], bool]) -> int:
    total = 0
    for _ in range(_ROUNDS):
        count, _lines = fix_files(files, wanted, write=True)
        total += count
        if not count:
            break
    return total


def _shown(path: Path) -> Path:
    """Return a path as seen from the working directory, where that is shorter."""
    try:
        relative = Path(os.path.relpath(path))
    except ValueError:
        return path
    return path if relative.parts[:1] == ("..",) else relative


def _codes() -> str:
    return ", ".join(sorted({rule.code for rule in rules()}))


def _list(text: str) -> list[str]:
    return [code.strip().upper() for code in text.split(",") if code.strip()]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of what follows ``lint``."""
    parser = Parser(
        prog="samebits lint",
        description="Find custom code that breaks or changes meaning between releases. The code is read and "
        "never run.",
        epilog="Exit codes: 0, nothing found; 1, something found; 2, a mistake on the command line. "
        "A comment `# samebits: ignore[SB101]` on a line hides its problems. docs/findings/ explains "
        "each code.",
    )
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help="Python files, or folders with them")
    add("--format", choices=FORMATS, default="text", help="format of the report (default: text)")
    add("--select", type=_list, default=[], metavar="CODES", help="only these codes, as SB1,SB301")
    add("--ignore", type=_list, default=[], metavar="CODES", help="all codes but these")
    add(
        "--from",
        dest="first",
        metavar="RELEASE",
        help="the oldest release that the code is for, as 4.57 (default: the oldest that samebits knows)",
    )
    add(
        "--to",
        dest="last",
        metavar="RELEASE",
        help="the newest release that the code is for, as 5.x (default: the newest that samebits knows)",
    )
    change = parser.add_mutually_exclusive_group()
    change.add_argument(
        "--fix",
        action="store_true",
        help="repair what can be repaired without a change of what 4.48 computes, then report the rest",
    )
    change.add_argument(
        "--diff", action="store_true", help="print the repairs as a diff, and write nothing"
    )
    return parser
