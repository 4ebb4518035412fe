"""Items that need no release: what ``samebits lint`` and ``samebits defaults`` say of a script or a file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from bench.guide.cases import Defaults, Lint
from samebits.defaults import command as defaults
from samebits.lint import command as linter

Shown = dict[str, Any]
"""found, named, alarm, cause and reason of an item."""


def of_lint(case: Lint, folder: Path) -> Shown:
    """Return what lint reports of the script and of its twin."""
    planted = _problems(case, case.script, folder / "planted", case.bad)
    before = _problems(case, case.script, folder / "planted", case.good)
    twin = _problems(case, case.clean, folder / "clean", case.bad)
    return _shown(f"{case.finding} by lint", planted, before, twin)


def _problems(case: Lint, script: str, folder: Path, release: str) -> list[str]:
    """Return the messages of the problems that a script has in one release."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "script.py"
    path.write_text(script, "utf-8")
    family = release.rpartition(".")[0]
    words = [str(path), "--format", "json", "--from", family, "--to", family]
    problems = _document(linter.main, words)["problems"]
    return [
        problem["message"]
        for problem in problems
        if problem["code"] == case.finding and case.says in problem["message"]
    ]


def of_defaults(case: Defaults, folder: Path) -> Shown:
    """Return what the table of defaults says of a file or class, and of its twin."""
    planted = _moves(case, case.of or case.content, folder / "planted")
    both = case.clean if isinstance(case.clean, str) else {**case.content, **case.clean}
    return _shown("samebits defaults", planted, [], _moves(case, both, folder / "clean"))


def _moves(case: Defaults, of: str | dict[str, Any], folder: Path) -> list[str]:
    if isinstance(of, dict):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / case.name
        path.write_text(json.dumps(of), "utf-8")
        of = str(path)
    words = [of, "--from", case.good, "--to", case.bad, "--format", "json"]
    answers = _document(defaults.main, words)["answers"]
    moves = [move for answer in answers for move in answer["moves"]]
    return [
        f"{move['field']}: {move['before']} → {move['after']}, since {move['since']}"
        for move in moves
        if move["field"] == case.field
    ]


def _document(main: Callable[[Sequence[str]], int], words: Sequence[str]) -> dict[str, Any]:
    data = io.BytesIO()
    text = io.TextIOWrapper(data, "utf-8")
    with redirect_stdout(text), redirect_stderr(io.StringIO()):
        main(words)
    text.flush()
    document: dict[str, Any] = json.loads(data.getvalue())
    return document


def _shown(by: str, planted: list[str], before: list[str], twin: list[str]) -> Shown:
    found = bool(planted) and not before
    reason = "" if found else f"{by}: " + ("also in the good release" if before else "nothing")
    return {
        "found": found,
        "named": found,
        "alarm": "; ".join(twin),
        "cause": f"{by}: {planted[0]}" if planted else "",
        "reason": reason,
    }
