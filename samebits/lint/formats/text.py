"""The text format: a line for each problem, a line for its remedy."""

from __future__ import annotations

from samebits.lint.engine import UNREADABLE
from samebits.lint.problem import Problem


def render(problems: list[Problem]) -> str:
    """Return the report; the last line counts."""
    lines = []
    for problem in problems:
        place = f"{problem.path}:{problem.line}:{problem.column}"
        if problem.code == UNREADABLE:
            lines.append(f"{place}: {problem.message}")
            continue
        lines.append(f"{place}: {problem.code} {problem.message} ({problem.releases})")
        mark = " [--fix]" if problem.edits else ""
        lines.append(f"    {problem.remedy}{mark}")
    count = len(problems)
    if not count:
        lines.append("no problem found")
    else:
        fixable = sum(bool(p.edits) for p in problems)
        some = f"; --fix repairs {fixable}" if fixable else ""
        lines.append(f"{count} {'problem' if count == 1 else 'problems'} found{some}")
    return "\n".join(lines)
