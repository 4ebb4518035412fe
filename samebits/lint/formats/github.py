"""Annotations of GitHub Actions: one workflow command for each problem."""

from __future__ import annotations

from samebits.base.workflow import Level, annotation
from samebits.lint.problem import Problem
from samebits.lint.registry import rules

_LEVELS: dict[str, Level] = {"error": "error", "warning": "warning", "note": "notice"}


def render(problems: list[Problem]) -> str:
    """Return ``::warning file=…,line=…,col=…,title=…::message`` lines."""
    levels = {rule.code: rule.level for rule in rules()}
    return "\n".join(
        _line(problem, _LEVELS[levels.get(problem.code, "error")]) for problem in problems
    )


def _line(problem: Problem, level: Level) -> str:
    fields = {
        "file": problem.path.as_posix(),
        "line": problem.line,
        "endLine": problem.end_line,
        "col": problem.column,
        "title": problem.code,
    }
    parts = [problem.message, f"({problem.releases})" if problem.releases.ranges else ""]
    message = " ".join(filter(None, parts)) + (f"\n{problem.remedy}" if problem.remedy else "")
    return annotation(level, message, fields)
