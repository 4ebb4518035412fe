"""The JSON format."""

from __future__ import annotations

import json

from samebits.lint.problem import Problem
from samebits.lint.releases import NEWEST, Range, release_text

SCHEMA_VERSION = 1


def render(problems: list[Problem]) -> str:
    """Return one JSON object; positions count from 1, columns in characters."""
    rows = [
        {
            "path": problem.path.as_posix(),
            "line": problem.line,
            "column": problem.column,
            "end_line": problem.end_line,
            "end_column": problem.end_column,
            "code": problem.code,
            "message": problem.message,
            "releases": str(problem.releases),
            "affected": [_range(r) for r in problem.releases.ranges],
            "remedy": problem.remedy,
            "fixable": bool(problem.edits),
        }
        for problem in problems
    ]
    content = {"schema_version": SCHEMA_VERSION, "problems": rows}
    return json.dumps(content, indent=2, ensure_ascii=False)


def _range(releases: Range) -> dict[str, str | None]:
    """Return the first and the last release; null for "and later"."""
    first, last = map(release_text, releases)
    return {"first": first, "last": None if releases.last == NEWEST else last}
