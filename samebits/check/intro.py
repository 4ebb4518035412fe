"""What is said of a model before its check runs, and what its code alone shows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from samebits.check import hub
from samebits.check.model import NamedModel
from samebits.check.releases import Span
from samebits.lint.engine import UNREADABLE, lint, python_files
from samebits.lint.problem import Problem
from samebits.lint.releases import scope
from samebits.matrix.plan import command_line
from samebits.matrix.values import is_source
from samebits.reports.plain import Place
from samebits.text.numbers import plural

_MAX_PROBLEMS = 5


def intro(model: NamedModel, releases: Span, *, has_dtypes: bool) -> Iterator[str]:
    """Yield what is compared, in which releases and dtypes."""
    size = f", {_size(model.size)}" if model.size else ""
    commit = f" at {model.revision}" if model.hub and model.revision else ""
    yield f"{model.name}: {model.kind}{size}{commit}"
    stacks = releases.stacks
    compared = f"transformers {stacks[0]}" if len(stacks) == 1 else " → ".join(stacks)
    yield f"compared: {compared} ({releases.reason})"
    if model.dtypes and not has_dtypes:
        yield f"in {model.dtypes[0]}, which config.json names, and in {model.dtypes[1]}"


def _size(n_bytes: int) -> str:
    unit, name = next(
        (u, n) for u, n in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if n_bytes >= u or u == 1e3
    )
    return f"{n_bytes / unit:,.1f} {name}"


def code_problems(model: NamedModel, releases: Span) -> list[Problem]:
    """Return what the model's code alone shows in these releases, before anything runs.

    What one of the two releases has comes before what only those between them have.
    """
    folder = Path(model.path) if model.path else hub.code_folder(str(model.hub), model.revision)
    if folder is None:
        return []
    first, last = (None if is_source(s) else s for s in (releases.stacks[0], releases.stacks[-1]))
    compared = scope(first, last)
    ends = [scope(end, end) for end in (first, last) if end is not None]
    problems = lint(python_files([folder])).problems
    met = [p for p in problems if p.code == UNREADABLE or p.releases.meet(compared)]
    return sorted(met, key=lambda p: bool(ends) and not any(map(p.releases.meet, ends)))


def of_last(problems: list[Problem], releases: Span) -> Iterator[str]:
    """Yield the codes of the problems that the last release has."""
    if not is_source(last := releases.stacks[-1]):
        yield from (p.code for p in problems if p.releases.meet(scope(last, last)))


def in_words(problems: list[Problem], model: NamedModel) -> Iterator[str]:
    """Yield the first problems of the model's code, one line each."""
    if not problems:
        return
    yield f"seen by reading its code: {plural(len(problems), 'problem')}"
    for problem in problems[:_MAX_PROBLEMS]:
        yield f"  {place(problem)}: {problem.code} {problem.message} ({problem.releases})"
    if len(problems) > _MAX_PROBLEMS:
        prefix = f"{Path.cwd()}{os.sep}"
        more = command_line(("samebits", "lint"), (model.typed.removeprefix(prefix),))
        yield f"  … and {len(problems) - _MAX_PROBLEMS} more: {more}"


def place(problem: Problem) -> Place:
    """Return the line of the model's code that shows a problem."""
    return Place(problem.path.name, problem.line, problem.column)


def places(problems: Sequence[Problem]) -> dict[str, Place]:
    """Return the first line of each finding, and how many lines more show it."""
    counts = Counter(problem.code for problem in problems)
    first = {problem.code: place(problem) for problem in reversed(problems)}
    return {
        code: first_place._replace(n_more=counts[code] - 1) for code, first_place in first.items()
    }
