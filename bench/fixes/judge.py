"""What a report shows of a case: found, named, listed as not run, or nothing: silent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bench.fixes.proof import Case
from bench.recall.cases import PASSING
from bench.recall.judge import codes, differing, line, places
from samebits.questions.changes.section import SHOWN

Cell = dict[str, Any]
_FACTS = (
    "changes",
    "unstable",
    "headline",
    "absent",
    "deciding",
    "first",
    "failure",
    "shared_failures",
    "cause",
)
"""Keys of a cell that say what differs."""


class Outcome(NamedTuple):
    """What one run shows of one case."""

    found: bool
    named: bool
    listed: bool
    """Whether a changed definition of the case is among the first that the page lists as not run."""
    shown: str
    """Verdict, signals that differ and findings of the release with the fix."""
    because: str
    """What it was found by; '' if it was not found."""

    @property
    def silent(self) -> bool:
        """Whether the page says nothing of it."""
        return not (self.found or self.listed)


def judge(case: Case, report: dict[str, Any]) -> Outcome:
    """Return what the cells of both releases show of a case."""
    rows = [_with_findings_of_stacks(row["cells"], report["stacks"]) for row in report["rows"]]
    cells = [cell for row in rows for cell in row]
    if not cells:
        return Outcome(False, False, False, "no cell ran", "")
    shown = [text for row in rows for text in _found(case, row)]
    shown += [text for row in report["rows"] for text in _in_tables(case, row)]
    because = next(iter(shown), "")
    return Outcome(
        found=bool(because),
        named=bool(because) and any(_names(case, cell, because) for cell in cells),
        listed=any(_lists(case, row) for row in report["rows"]),
        shown=line(cells[-1]),
        because=because,
    )


def _with_findings_of_stacks(cells: list[Cell], stacks: list[dict[str, Any]]) -> list[Cell]:
    of_stacks = {stack["id"]: stack.get("findings", ()) for stack in stacks}
    return [
        cell | {"findings": [*cell.get("findings", ()), *of_stacks.get(cell["cell"]["stack"], ())]}
        for cell in cells
    ]


def _found(case: Case, cells: list[Cell]) -> Iterator[str]:
    """Yield what shows the case in the cells of one row; what all of them have shows nothing."""
    shared = _shared(cells)
    for cell in cells:
        yield from (code for code in codes(cell) if code in case.findings and code not in shared)
        failure = cell.get("failure") or {}
        if case.failure and case.failure in f"{failure.get('type')}: {failure.get('message')}":
            yield f"{failure['type']} in {failure['phase']}"
        if cell["judged"] not in PASSING:
            yield from (signal for signal in differing(cell) if signal in case.signals)
    for cell in cells:
        yield from (t[:200] for t in _texts(cell) if t not in shared and _says(case, t))


def _in_tables(case: Case, row: dict[str, Any]) -> Iterator[str]:
    """Yield what the tables of a model's page show of processors and texts that differ between the releases."""
    answers = row.get("answers") or {}
    for difference in (*_of_processors(answers), *_of_texts(answers)):
        text = " | ".join(map(str, difference.values()))
        if _says(case, text):
            yield text[:200]


def _of_processors(answers: dict[str, Any]) -> Iterator[dict[str, Any]]:
    compared = (answers.get("processors") or {}).get("compared", {})
    for part in (part for of_stack in compared.values() for part in of_stack["parts"]):
        yield from part.get("differences", ())


def _of_texts(answers: dict[str, Any]) -> Iterator[dict[str, Any]]:
    stacks = (answers.get("texts") or {}).get("stacks", {})
    for operation in (each for of_stack in stacks.values() for each in of_stack["operations"]):
        if (first := operation.get("first")) is not None:
            yield {"operation": operation["operation"]} | first


def _says(case: Case, text: str) -> bool:
    failure_words = map(re.escape, filter(None, [case.failure]))
    return any(re.search(pattern, text) for pattern in (*case.says, *failure_words))


def _shared(cells: list[Cell]) -> set[str]:
    """Return the codes and the texts that each of several cells has: they show no difference."""
    if len(cells) == 1:
        return set()
    return set.intersection(*({*codes(cell), *_texts(cell)} for cell in cells))


def _texts(cell: Cell) -> Iterator[str]:
    """Yield what the page of a cell says of differences: findings with their evidence, and facts."""
    for finding in cell.get("findings", ()):
        yield f"{finding['code']} {finding.get('where', '')}: {' | '.join(finding['evidence'])}"
    for key in _FACTS:
        yield from (f"{key}: {text}" for text in _strings(cell.get(key)))


def _strings(value: Any, before: str = "") -> Iterator[str]:
    """Yield each fact of a record as one text; a list of records gives one for each."""
    if isinstance(value, list):
        for entry in value:
            yield from _strings(entry, before)
    elif isinstance(value, dict) and not {"what", "reference", "candidate"} & {*value}:
        for key, entry in value.items():
            yield from _strings(entry, f"{before}{key} ")
    elif value is not None:
        yield f"{before}{value}"


def _names(case: Case, cell: Cell, because: str) -> bool:
    if because in case.findings or any(source in because for source in case.source):
        return True
    return any(source in place for source in case.source for place in places(cell))


def _lists(case: Case, row: dict[str, Any]) -> bool:
    """Return whether what the page lists of the changed code that did not run has a source of the case."""
    steps = ((row.get("answers") or {}).get("changes") or {}).get("steps", ())
    first = [
        f"{entry['name']} ({entry['file']})"
        for step in steps
        for entry in step.get("first", ())[:SHOWN]
    ]
    return any(source in place for source in case.source for place in first)
