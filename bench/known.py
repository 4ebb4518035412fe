"""docs/models.md, which answers "is my model hit?": the zoo's models, releases and findings.

``python -m bench.known`` writes it from the committed report of the zoo; tests/bench/test_known.py checks
that it is current.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from samebits.findings.rulebook import text_with_code
from samebits.questions.registry import rules
from samebits.questions.relations.lines import breaks
from samebits.records.ids import Verdict
from samebits.reports import again
from samebits.reports.answer.side import faults, sound
from samebits.reports.packed import NAME
from samebits.reports.stories import SEVERITY
from samebits.text.blocks import heading, link, page, table
from samebits.text.markdown import Markdown, fill, join
from samebits.text.names import page_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samebits.records.report import Report, Row

ROOT = Path(__file__).parents[1]
ZOO = ROOT / "reports" / "zoo"
PATH = ROOT / "docs" / "models.md"

OWN_CODE = "custom code"
"""The group of models that nobody but this project has."""

MARKS = {
    Verdict.REFERENCE: "reference",
    Verdict.IDENTICAL: "=",
    Verdict.ROUNDING: "≈",
    Verdict.DIVERGED: "**≠**",
    Verdict.UNDECIDED: "?",
    Verdict.UNSTABLE: "**unstable**",
    Verdict.FAILED: "**raises**",
    Verdict.ABSENT: "-",
}

_INTRO = """\
The zoo has tiny models of many architectures. Each was compared under several releases of transformers. Search this page for your \
model's type, as config.json has it. A model whose config switches other things on may be hit by more: `samebits check` your \
own. A mark compares with the reference; `✗` and `✓` say which side is right, where something shows it."""

WRONG, RIGHT = "**✗**", "✓"
_LEGEND = (
    "`=` the same bits · `≈` rounding · `≠` behaviour change · `✗` wrong, as a finding, a consistency check or zoo.yaml "
    "says · `✓` differs from a release that is wrong, and fails no consistency check · `?` undecided · `-` not in this release"
)


def render(report: Report) -> str:
    """Return the page."""
    models: defaultdict[str, list[Row]] = defaultdict(list)
    for row in report.rows:
        if row.group != OWN_CODE:
            models[row.model].append(row)
    titles = {rule.code: rule.text.name for rule in rules()}
    groups: dict[bool, list[list[Row]]] = {True: [], False: []}
    for rows in models.values():
        groups[_severity(rows) < len(SEVERITY)].append(rows)
    hit = sorted(groups[True], key=lambda rows: (_severity(rows), rows[0].model))
    others = sorted(groups[False], key=lambda rows: rows[0].model)
    blocks = [
        heading(1, "Is my model hit?"),
        Markdown(_INTRO),
        Markdown(_LEGEND),
        heading(2, "Models that change behaviour or fail in a release"),
        _table(hit, report, titles),
        heading(2, "Models that differ by rounding at most"),
        _table(others, report, titles),
    ]
    return f"{page(blocks)}\n"


def _severity(rows: Iterable[Row]) -> int:
    """Return how bad the worst cell is; 0 is the worst, ``len(SEVERITY)`` no change of the function."""
    judged = {cell.judged or cell.verdict for row in rows for cell in row.cells}
    return min(
        (i for i, verdict in enumerate(SEVERITY) if verdict in judged), default=len(SEVERITY)
    )


def _table(models: list[list[Row]], report: Report, titles: Mapping[str, str]) -> Markdown:
    releases = [stack.transformers or stack.id for stack in report.stacks]
    lines = []
    for rows in models:
        wrong = {stack for row in rows for stack in faults(row, report)}
        right = set.intersection(*({*sound(row, report)} for row in rows))
        marks = [_mark(rows, stack.id, wrong, right) for stack in report.stacks]
        name = link(rows[0].model, f"../reports/zoo/{page_path(rows[0].model)}")
        lines.append([name, *marks, _findings(rows, titles)])
    return table(["model", *releases, "findings"], lines)


def _mark(rows: list[Row], stack: str, wrong: set[str], right: set[str]) -> Markdown:
    """Return the worst mark of a model under a release, over its variants, or which side is right."""
    judged = [c.judged or c.verdict for row in rows for c in row.cells if c.cell.stack == stack]
    order = [*SEVERITY, Verdict.ROUNDING, Verdict.REFERENCE, Verdict.IDENTICAL, Verdict.ABSENT]
    worst = min(judged, key=order.index, default=Verdict.ABSENT)
    if worst not in (Verdict.FAILED, Verdict.UNSTABLE):
        if stack in wrong:
            return Markdown(WRONG)
        if worst is Verdict.DIVERGED and stack in right and not any(breaks(r, stack) for r in rows):
            return Markdown(RIGHT)
    return Markdown(MARKS.get(worst, str(worst)))


def _findings(rows: list[Row], titles: Mapping[str, str]) -> Markdown:
    codes = sorted(
        {finding.code for row in rows for cell in row.cells for finding in cell.findings}
    )
    named = (
        fill("{} {}", link(name, f"findings/{name}.md"), text_with_code(titles[name]))
        for name in codes
    )
    return join(named, "; ")


def main() -> None:
    """Write the page."""
    PATH.write_text(render(again.read(ZOO / NAME).report), "utf-8", newline="\n")


if __name__ == "__main__":
    main()
