"""What report.md has of the models and their defects: the worst, and what to do about it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from samebits.diagnose.exit_code import fails
from samebits.findings.rulebook import title
from samebits.reports.plain import KINDS, on_one_line
from samebits.reports.sections.at_a_glance import COLUMNS, SERIOUS
from samebits.reports.sections.overview import summary_lines
from samebits.reports.stories import is_reference
from samebits.text.blocks import bullets, first_of, heading, link, page, table
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill
from samebits.text.names import page_path
from samebits.text.numbers import count, plural

if TYPE_CHECKING:
    from samebits.records.finding import RuleText
    from samebits.records.report import Report

FINDINGS = "findings.md"
VERDICTS = "verdicts.md"

MAX_DEFECTS = 8
MAX_REMEDY = 300
MAX_MODELS = 4
MAX_LINES = 40
"""Limit for the lines of the models' table; more models are counted by group."""


class Defect(NamedTuple):
    """A known defect and the models that show it in a cell that is worse than rounding."""

    text: RuleText
    models: tuple[str, ...]
    fails: bool
    """Whether it is in a cell that makes the run fail."""


def to_do(report: Report) -> Markdown:
    """Return the remedies of the known defects, those of failing cells first; may be empty."""
    defects = _defects(report)
    if not defects:
        return EMPTY
    lines = [_defect(defect) for defect in defects[:MAX_DEFECTS]]
    n_more = len(defects) - len(lines)
    more = fill("{} in the {}.", plural(n_more, "more defect"), link("findings", FINDINGS))
    return page([heading(2, "What to do"), bullets(lines), more if n_more > 0 else EMPTY])


def _defects(report: Report) -> list[Defect]:
    models: dict[str, dict[str, bool]] = {}
    for cell in report.cells:
        model = cell.cell.model
        for finding in cell.findings if fails(cell) or cell.judged in SERIOUS else ():
            of_code = models.setdefault(finding.code, {})
            of_code[model] = of_code.get(model, False) or fails(cell)
    defects = [
        Defect(text, tuple(models[text.code]), any(models[text.code].values()))
        for text in report.rules
        if text.scope == "model" and text.kind in ("crash", "silent") and text.code in models
    ]
    return sorted(
        defects, key=lambda d: (not d.fails, KINDS.index(d.text.kind), -len(d.models), d.text.code)
    )


def _defect(defect: Defect) -> Markdown:
    shown = first_of([link(model, page_path(model)) for model in defect.models], MAX_MODELS)
    remedy = clip(on_one_line(defect.text.remedy), MAX_REMEDY)
    return fill("**{}** ({}): {}", title(defect.text), shown, remedy)


def models(report: Report) -> Markdown:
    """Return the verdicts of all models, or of many models how many cells of a group have each."""
    if not report.rows:
        return EMPTY
    lines = summary_lines(report)
    if len(lines.rows) <= MAX_LINES:
        return page([heading(2, "Models"), table(lines.headers, lines.rows)])
    return page([heading(2, "Models"), _groups(report)])


def _groups(report: Report) -> Markdown:
    """Return a line for each group of models, with its compared cells by verdict."""
    verdicts: dict[str, Counter[str]] = {}
    names: dict[str, set[str]] = {}
    for row in report.rows:
        group = row.group or "other models"
        names.setdefault(group, set()).add(row.model)
        counts = verdicts.setdefault(group, Counter())
        counts.update(cell.judged for cell in row.cells if not is_reference(cell))
    headers = ["group", "models", *COLUMNS.values()]
    rows = [
        [group, count(len(names[group])), *(_count(counts[verdict]) for verdict in COLUMNS)]
        for group, counts in verdicts.items()
    ]
    more = fill("… and {}.", plural(len(rows) - MAX_LINES, "more group"))
    return page(
        [
            table(headers, rows[:MAX_LINES], right=headers[1:]),
            more if len(rows) > MAX_LINES else EMPTY,
            fill("Cells by verdict, beside the reference. {} has every row.", code(VERDICTS)),
        ]
    )


def _count(n: int) -> str:
    return count(n) if n else ""
