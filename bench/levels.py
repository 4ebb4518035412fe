"""``nox -s levels``: what each level of a run concludes about the zoo, and what only a deeper one sees.

The zoo runs at ``--quick``, default and ``--deep``. Each conclusion is one line: a cell's verdict, an
exception, a finding, a broken relation. What only the deeper of two levels concludes is listed. What
only the shallower concludes is a contradiction, and the command exits with 1. A cell that the deeper
level finds unstable is not compared further.

The counts go to levels.json, and from there to docs/performance.md. Options are those of
``samebits matrix``, such as ``--models 'llama*'``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench import page
from bench.machine import machine
from bench.place import ROOT
from bench.real_size import LEVELS
from samebits.questions.relations.judge import Standing, judge_relation
from samebits.questions.relations.records import signals_of
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row

FORMAT_VERSION = 1
# History of FORMAT_VERSION:
# 1: first.


class Conclusion(NamedTuple):
    """Something that a run concludes about one cell."""

    cell: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.kind} {self.text}"


class Difference(NamedTuple):
    """What two levels do not both conclude."""

    deeper: list[Conclusion]
    contradictions: list[Conclusion]


def main(options: Sequence[str]) -> int:
    """Run the levels and print how their conclusions differ; 0 if none contradicts a deeper one."""
    steps: list[dict[str, Any]] = []
    facts: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat(), "machine": machine()}
    with tempfile.TemporaryDirectory(prefix="samebits-levels-") as folder:
        reports = {level: run(level, options, Path(folder) / level) for level in LEVELS}
        for level, deeper in pairwise(LEVELS):
            difference = compare(reports[level], reports[deeper])
            print(f"only {deeper} sees ({len(difference.deeper)}):")
            print(*(f"  {line}" for line in difference.deeper), sep="\n")
            print(f"{level} contradicts {deeper} ({len(difference.contradictions)}):")
            print(*(f"  {line}" for line in difference.contradictions), sep="\n")
            steps.append(counted(level, deeper, difference))
        facts |= extent(reports[deeper])
    results = {"format": "samebits-levels", "format_version": FORMAT_VERSION, **facts}
    page.LEVELS.write_text(json.dumps(results | {"steps": steps}, indent=1) + "\n", "utf-8")
    page.main()
    return any(step["contradictions"] for step in steps)


def extent(report: Report) -> dict[str, int]:
    """Return how many models, cells and conclusions a report has."""
    return {
        "models": len({row.model for row in report.rows}),
        "cells": sum(len(row.cells) for row in report.rows),
        "conclusions": len(set(_conclusions(report))),
    }


def counted(level: str, deeper: str, difference: Difference) -> dict[str, Any]:
    """Return two neighbouring levels, and the number of cells for each conclusion of one alone.

    A conclusion is counted without its place, such as a tensor's name.
    """
    return {
        "level": level,
        "deeper": deeper,
        "only_deeper": _counts(difference.deeper),
        "contradictions": _counts(difference.contradictions),
    }


def _counts(conclusions: Iterable[Conclusion]) -> dict[str, int]:
    cells = {(_without_place(conclusion), conclusion.cell) for conclusion in conclusions}
    return dict(sorted(Counter(text for text, _ in cells).items()))


def _without_place(conclusion: Conclusion) -> str:
    text = conclusion.text.split(" ")[0] if conclusion.kind == "finding" else conclusion.text
    return f"{conclusion.kind} {text}"


def run(level: str, options: Sequence[str], folder: Path) -> Report:
    """Return the report of a run of the zoo at one level.

    Raises:
        SystemExit: the run left no report.

    """
    command = [sys.executable, "-m", "samebits", "matrix", "--matrix", "zoo.yaml", "--no-repro"]
    command += ["--reports", str(folder), *options, *LEVELS[level]]
    subprocess.run(command, cwd=ROOT, check=False)
    path = folder / "report.json"
    if not path.exists():
        sys.exit(f"the run at level {level} left no report")
    return Report.model_validate_json(path.read_bytes())


def compare(report: Report, deeper: Report) -> Difference:
    """Return what only the deeper report concludes, and what contradicts it."""
    conclusions, all_deeper = set(_conclusions(report)), set(_conclusions(deeper))
    unstable = {c.cell for c in all_deeper if c.kind == "verdict" and c.text == Verdict.UNSTABLE}
    contradictions = {c for c in conclusions - all_deeper if c.cell not in unstable}
    return Difference(sorted(all_deeper - conclusions), sorted(contradictions))


def _conclusions(report: Report) -> Iterator[Conclusion]:
    for row in report.rows:
        for cell in row.cells:
            name = str(cell.cell)
            for kind, text in _of_cell(row, cell):
                yield Conclusion(name, kind, text)


def _of_cell(row: Row, cell: CellResult) -> Iterator[tuple[str, str]]:
    yield "verdict", cell.verdict
    for comparison in cell.signals:
        yield "signal", f"{comparison.signal} {comparison.outcome}"
    if cell.failure is not None:
        yield "exception", f"{cell.failure.phase} {cell.failure.type}"
    for finding in cell.findings:
        yield "finding", f"{finding.code} {finding.where}"
    signal = signals_of(row).get(cell.cell.stack)
    for relation in signal.relations if signal is not None else ():
        standing = judge_relation(relation, cell.cell.variant.dtype)
        if standing == Standing.BROKEN:
            yield "relation", f"{relation.relation} broken"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
