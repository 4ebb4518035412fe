"""SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from samebits.lint.registry import rules
from samebits.lint.source import Source, UnreadableError

if TYPE_CHECKING:
    from samebits.lint.problem import Edit, LintRule, Problem

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_DOCS = "docs/findings"
"""The folder of the pages, in the repository of samebits."""
_ROOT = "SRCROOT"
"""The base of relative paths: the folder that the command ran in."""

_MEANING = {
    "error": "The code raises an exception in some release of transformers.",
    "warning": "The code gives other numbers, or another type, in some release of transformers.",
    "note": "The code rounds differently in some release of transformers.",
}


def render(problems: list[Problem]) -> str:
    """Return one log with one run; files that cannot be read are notifications."""
    by_code = {rule.code: rule for rule in rules()}
    results = [problem for problem in problems if problem.code in by_code]
    unread = [problem for problem in problems if problem.code not in by_code]
    run = {
        "tool": {"driver": _driver(list(by_code.values()))},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"uri": f"{Path.cwd().as_uri().rstrip('/')}/"}},
        "results": _results(results, by_code),
        "invocations": [
            {
                "executionSuccessful": not unread,
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


def _driver(every: list[LintRule]) -> dict[str, Any]:
    text = files("samebits.lint").joinpath("remedies.json").read_text("utf-8")
    remedies: dict[str, str] = json.loads(text)
    descriptions = [_rule(rule, remedies[rule.code]) for rule in every]
    driver: dict[str, Any] = {"name": "samebits", "rules": descriptions}
    with suppress(PackageNotFoundError):  # run from a folder that is not installed
        driver["semanticVersion"] = version("samebits")
    return driver


def _rule(rule: LintRule, remedy: str) -> dict[str, Any]:
    page = f"{_DOCS}/{rule.code}.md"
    name = rule.name.replace("`", "")
    meaning = _MEANING[rule.level]
    return {
        "id": rule.code,
        "shortDescription": {"text": name},
        "fullDescription": {"text": f"{name[0].upper()}{name[1:]}. {meaning}"},
        "help": {
            "text": f"{meaning} Remedy: {remedy} Cause and releases: {page}",
            "markdown": f"{meaning}\n\n**Remedy.** {remedy}\n\nCause and releases: `{page}`",
        },
        "helpUri": page,
        "defaultConfiguration": {"level": rule.level},
    }


def _results(problems: list[Problem], by_code: dict[str, LintRule]) -> list[dict[str, Any]]:
    places = list(by_code)
    sources = {path: _source(path) for path in {p.path for p in problems}}
    repeats: Counter[str] = Counter()
    results = []
    for problem in problems:
        source = sources[problem.path]
        result = {
            "ruleId": problem.code,
            "ruleIndex": places.index(problem.code),
            "level": by_code[problem.code].level,
            "message": {
                "text": f"{problem.message} ({problem.releases}). Remedy: {problem.remedy}"
            },
            "locations": [_location(problem)],
        }
        if source is not None:
            result["partialFingerprints"] = {"line/v1": _fingerprint(problem, source, repeats)}
            if problem.edits:
                result["fixes"] = [_fix(problem, source)]
        results.append(result)
    return results


def _source(path: Path) -> Source | None:
    try:
        return Source(path, path.read_bytes())
    except (OSError, UnreadableError):  # it changed since it was read
        return None


def _fingerprint(problem: Problem, source: Source, repeats: Counter[str]) -> str:
    """Return a digest that stays when lines are added above: of code, path, text and repetition."""
    start, end = source.line_start(problem.line), source.line_end(problem.line)
    text = " ".join(source.text[start:end].split())
    content = f"{problem.code}\n{problem.path.as_posix()}\n{text}"
    repeats[content] += 1
    return sha256(f"{content}\n{repeats[content]}".encode("utf-8", "surrogatepass")).hexdigest()[
        :32
    ]


def _fix(problem: Problem, source: Source) -> dict[str, Any]:
    return {
        "description": {"text": problem.remedy},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(problem.path),
                "replacements": [_replacement(edit, source) for edit in problem.edits],
            }
        ],
    }


def _replacement(edit: Edit, source: Source) -> dict[str, Any]:
    region = _region(*source.position(edit.start), *source.position(edit.end))
    return {"deletedRegion": region, "insertedContent": {"text": edit.text}}


def _location(problem: Problem) -> dict[str, Any]:
    region = _region(problem.line, problem.column, problem.end_line, problem.end_column)
    return {
        "physicalLocation": {"artifactLocation": _artifact(problem.path), "region": region},
    }


def _region(line: int, column: int, end_line: int, end_column: int) -> dict[str, int]:
    return {
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    }


def _artifact(path: Path) -> dict[str, str]:
    """Return a path relative to the working directory, or a file URI outside of it."""
    if path.is_absolute():
        return {"uri": path.as_uri()}
    return {"uri": quote(path.as_posix()), "uriBaseId": _ROOT}
