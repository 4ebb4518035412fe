"""docs/models.md, which answers "is my model hit?": the zoo's models, releases and findings.

``python -m bench.known`` writes it from the committed report of the zoo; tests/bench/test_known.py checks
that it is current.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from samebits.base.finding_pages import finding_page
from samebits.findings.rulebook import text_with_code
from samebits.questions.registry import rules
from samebits.questions.relations.lines import breaks
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports import again
from samebits.reports.answer import Answer, answers, faults, first_sentences, is_quiet
from samebits.reports.answer.side import sound
from samebits.reports.packed import NAME
from samebits.reports.stories import SEVERITY
from samebits.text.blocks import heading, link, page, table
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, fill, join, prose
from samebits.text.names import page_path

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
model's type, as config.json has it. Its line has a mark for each release, and the codes of known defects. [The last \
table](#the-defects-and-who-is-hit) says of each code who is hit, in which releases, and what to do. A model whose config switches \
other things on may be hit by more: `samebits check` your own."""
_DEFECTS = """\
The last column has the models of the zoo that show a defect, and in which of the releases. What *is named*, and the *evidence*, is \
on the page of the model, which the tables above link."""

MAX_TEXT = 250
"""Characters of the sentences of a finding's page that are repeated here, the first one in any case."""
MAX_MODELS = 10_000
"""Limit in characters for a list of models, high enough that no name is cut."""
WRONG, RIGHT = "**✗**", "✓"
_LEGEND = (
    "A mark compares with the reference. `=` the same bits · `≈` rounding · `≠` behaviour change · `✗` wrong, as a finding, a consistency check or zoo.yaml "
    "(the list of the zoo's models and known differences) says · `✓` differs from a release that is wrong, and fails no consistency check · `?` undecided · `-` not in this release"
)


def render(report: Report) -> str:
    """Return the page."""
    models: defaultdict[str, list[Row]] = defaultdict(list)
    for row in report.rows:
        if row.group != OWN_CODE:
            models[row.model].append(row)
    groups: dict[bool, list[list[Row]]] = {True: [], False: []}
    for rows in models.values():
        groups[_severity(rows) < len(SEVERITY)].append(rows)
    hit = sorted(groups[True], key=lambda rows: (_severity(rows), rows[0].model))
    others = sorted(groups[False], key=lambda rows: rows[0].model)
    worst = {a.model: a for a in reversed(answers(report)) if not is_quiet(a)}
    blocks = [
        heading(1, "Is my model hit?"),
        Markdown(_INTRO),
        Markdown(_LEGEND),
        heading(2, "Models that change behaviour or fail in a release"),
        _table(hit, report, worst),
        heading(2, "Models that differ by rounding at most"),
        _table(others, report, {}),
        heading(2, "The defects, and who is hit"),
        Markdown(_DEFECTS),
        _defects([*hit, *others], report),
    ]
    return f"{page(blocks)}\n"


def _severity(rows: Iterable[Row]) -> int:
    """Return how bad the worst cell is; 0 is the worst, ``len(SEVERITY)`` no change of the function."""
    judged = {cell.judged or cell.verdict for row in rows for cell in row.cells}
    return min(
        (i for i, verdict in enumerate(SEVERITY) if verdict in judged), default=len(SEVERITY)
    )


def _table(models: list[list[Row]], report: Report, worst: Mapping[str, Answer]) -> Markdown:
    releases = [stack.transformers or stack.id for stack in report.stacks]
    lines = []
    for rows in models:
        wrong = {stack for row in rows for stack in faults(row, report)}
        right = set.intersection(*({*sound(row, report)} for row in rows))
        marks = [_mark(rows, stack.id, wrong, right) for stack in report.stacks]
        answer = worst.get(rows[0].model)
        side = prose(answer.side.why) if answer else EMPTY
        do = text_with_code(answer.do) if answer else EMPTY
        codes = join((link(code, f"findings/{code}.md") for code in _codes(rows)), " ")
        lines.append([_name(rows), *marks, side, do, codes])
    head = ["model", *releases, "which side is wrong", "what to do", "defects"]
    return table(head, lines)


def _defects(models: list[list[Row]], report: Report) -> Markdown:
    """Return who is hit by each defect, the releases that have it, what to do, and the models that show it."""
    hit: defaultdict[str, list[str]] = defaultdict(list)
    for rows in models:
        for code in _codes(rows):
            hit[code].append(rows[0].model)
    lines = []
    for code, names in sorted(hit.items()):
        text = finding_page(code)
        name = fill("{} {}", link(code, f"findings/{code}.md"), text_with_code(text.name))
        own = (text.hit_if, *(first_sentences(t, MAX_TEXT) for t in (text.releases, text.remedy)))
        lines.append([name, *map(text_with_code, own), _shown_by(code, names, report)])
    return table(["defect", "hit if", "releases", "what to do", "models"], lines)


def _shown_by(code: str, models: list[str], report: Report) -> Markdown:
    """Return the models by the releases that show a defect; of a defect that the other side may show, the models."""
    if next(rule for rule in rules() if rule.code == code).faulty is not None:
        return prose(", ".join(models), MAX_MODELS)
    versions = {stack.id: stack.transformers or stack.id for stack in report.stacks}
    shown = {
        (c.cell.model, c.cell.stack) for c in report.cells for f in c.findings if f.code == code
    }
    by_releases = grouped(
        models, lambda model: tuple(v for s, v in versions.items() if (model, s) in shown)
    )
    lines = (f"{', '.join(stacks)}: {', '.join(names)}" for stacks, names in by_releases.items())
    return prose("; ".join(lines), MAX_MODELS)


def _name(rows: list[Row]) -> Markdown:
    return link(rows[0].model, f"../reports/zoo/{page_path(rows[0].model)}")


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


def _codes(rows: list[Row]) -> list[str]:
    return sorted({finding.code for row in rows for cell in row.cells for finding in cell.findings})


def main() -> None:
    """Write the page."""
    PATH.write_text(render(again.read(ZOO / NAME).report), "utf-8", newline="\n")


if __name__ == "__main__":
    main()
