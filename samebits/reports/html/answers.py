"""What a page says first of a row: the known defects that explain it, and which side is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from samebits.base.finding_pages import KINDS
from samebits.records.comparison import CellResult
from samebits.records.finding import Finding
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.answer import answers, faults, kind_of, of_cell
from samebits.reports.html.addresses import Addresses, cell_anchor, model_page
from samebits.reports.html.states import class_of
from samebits.reports.plain import explaining_codes
from samebits.text.markdown import clip
from samebits.text.names import spanned
from samebits.text.numbers import rounded_ulp

MAX_CHANGE = 120
"""Limit for the characters of what changed in one of several models: a number fits, an exception has more."""
_QUIET = (Verdict.REFERENCE, Verdict.IDENTICAL, Verdict.ROUNDING, Verdict.ABSENT)


class Known(NamedTuple):
    """A known defect of some cells, with the cell that has it and its stacks."""

    finding: Finding
    stacks: tuple[str, ...]
    explains: bool
    """True if it explains the verdict on one of the cells."""
    of_reference: bool = False
    """True if the reference has it, and not the cells."""


class Summary(NamedTuple):
    """An answer about a model, as the tables on top of a page show it."""

    name: str
    link: str
    variants: str
    classes: tuple[str, ...]
    """The shape and colour of its verdict, and the frame of a known difference."""
    change: str
    since: str
    right: str
    do: str


def summaries(report: Report, source: str, addresses: Addresses) -> list[Summary]:
    """Return the answers about the models of a report, the worst first, for the page ``source``.

    They are named by their models; on the page of a model, by the releases that differ in this way,
    and their variants.
    """
    is_one = len(report.models) == 1
    variants = {row.variant for row in report.rows}
    return [
        Summary(
            spanned(answer.stacks) if is_one else answer.model,
            addresses.page(source, model_page(answer.model), cell_anchor(answer.cell.cell)),
            ", ".join(answer.variants) if is_one and len(variants) > 1 else "",
            ("state", class_of(kind_of(answer.cell)), *(["expected"] if answer.is_known else [])),
            answer.change if is_one else clip(answer.change, MAX_CHANGE),
            answer.start,
            answer.side.why,
            answer.do,
        )
        for answer in answers(report)
    ]


class Answers:
    """The known defects of a report, and the cells that they explain."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.rules = {rule.code: rule for rule in report.rules}
        kinds = list(KINDS)
        self._ranks = {rule.code: kinds.index(rule.kind) for rule in report.rules}

    def known(self, cells: Iterable[CellResult], row: Row) -> list[Known]:
        """Return the defects of cells of a row: those that explain, the worst first, then others."""
        cells = list(cells)
        stacks: dict[tuple[str, str], dict[str, None]] = {}
        findings: dict[tuple[str, str], Finding] = {}
        for cell in cells:
            for finding in cell.findings:
                key = finding.code, finding.where
                findings.setdefault(key, finding)
                stacks.setdefault(key, {})[cell.faulty(finding)] = None
        explaining = explaining_codes(cells)
        own = {cell.cell.stack for cell in cells}
        entries = [
            Known(finding, (*stacks[key],), finding.code in explaining, own.isdisjoint(stacks[key]))
            for key, finding in findings.items()
        ]
        entries += self._of_reference(cells, row, {finding.code for finding in findings.values()})
        return sorted(entries, key=self._rank)

    def sentences(self, cell: CellResult) -> list[tuple[str, str]]:
        """Return what to read first about a cell: sentences, each with a title or ''."""
        if cell.judged in _QUIET:
            return [("", cell.headline)]
        answer = of_cell(cell, self._report)
        named = [
            ("", answer.change),
            ("Since", answer.start),
            ("Where", answer.where),
            ("Which side is right", answer.side.why),
            ("What to do", answer.do),
        ]
        named += [("Decides", rounded_ulp(cell.deciding.what))] if cell.deciding else []
        named += [("Differs first", rounded_ulp(cell.first.what))] if cell.first else []
        return [(title, text) for title, text in named if text]

    def wrong(self, row: Row) -> dict[str, tuple[str, ...]]:
        """Return stack -> the codes of the defects for which it is wrong."""
        return faults(row, self._report)

    def _of_reference(self, cells: list[CellResult], row: Row, own: set[str]) -> list[Known]:
        """Return the defects of the reference that explain the cells, each once."""
        wanted = {
            (explanation.code, explanation.stack): explanation
            for cell in cells
            for explanation in cell.explained_by
            if explanation.code not in own and explanation.stack != cell.cell.stack
        }
        return [
            Known(finding, (cell.cell.stack,), explains=True, of_reference=True)
            for cell in row.cells
            for finding in cell.findings
            if (finding.code, cell.cell.stack) in wanted
        ]

    def _rank(self, known: Known) -> tuple[bool, bool, int]:
        code = known.finding.code
        return not known.explains, known.finding.of_saving, self._ranks.get(code, 9)
