"""SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from samebits.lint.registry import rules

if TYPE_CHECKING:
    from samebits.lint.problem import Problem

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(problems: list[Problem]) -> str:
    """Return one log with one run; files that cannot be read are notifications."""
    by_code = {rule.code: rule for rule in rules()}
    results = [problem for problem in problems if problem.code in by_code]
    unread = [problem for problem in problems if problem.code not in by_code]
    driver = {
        "name": "samebits",
        "rules": [
            {
                "id": rule.code,
                "shortDescription": {"text": rule.name},
                "defaultConfiguration": {"level": rule.level},
            }
            for rule in by_code.values()
        ],
    }
    places = list(by_code)
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(p, places.index(p.code), by_code[p.code].level) for p in results],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {
                        "level": "error",
                        "message": {"text": p.message},
                        "locations": [_location(p)],
                    }
                    for p in unread
                ],
            }
        ],
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False)


def _result(problem: Problem, index: int, level: str) -> dict[str, Any]:
    return {
        "ruleId": problem.code,
        "ruleIndex": index,
        "level": level,
        "message": {"text": f"{problem.message} ({problem.releases}). Remedy: {problem.remedy}"},
        "locations": [_location(problem)],
    }


def _location(problem: Problem) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(problem.path.as_posix())},
            "region": {
                "startLine": problem.line,
                "startColumn": problem.column,
                "endLine": problem.end_line,
                "endColumn": problem.end_column,
            },
        }
    }
