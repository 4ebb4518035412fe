"""Annotations of GitHub Actions: one workflow command for each problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.lint.registry import rules

if TYPE_CHECKING:
    from samebits.lint.problem import Problem

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(problems: list[Problem]) -> str:
    """Return ``::warning file=…,line=…,col=…,title=…::message`` lines."""
    levels = {rule.code: rule.level for rule in rules()}
    return "\n".join(
        _line(problem, _COMMANDS[levels.get(problem.code, "error")]) for problem in problems
    )


def _line(problem: Problem, command: str) -> str:
    fields = {
        "file": problem.path.as_posix(),
        "line": problem.line,
        "endLine": problem.end_line,
        "col": problem.column,
        "title": problem.code,
    }
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in fields.items())
    parts = [problem.message, f"({problem.releases})" if problem.releases.ranges else ""]
    message = " ".join(filter(None, parts)) + (f"\n{problem.remedy}" if problem.remedy else "")
    return f"::{command} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
