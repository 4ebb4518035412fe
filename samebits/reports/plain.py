"""What is said of a cell in plain text: on the terminal, in JUnit XML and on GitHub."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from samebits.diagnose.exit_code import fails
from samebits.findings.rulebook import plain_title
from samebits.records.comparison import CellResult
from samebits.records.finding import Explanation, RuleText
from samebits.records.ids import Verdict
from samebits.records.report import Report
from samebits.reports.cell.cause import place, shown_cause
from samebits.reports.stories import cell_in_short, verdict_word
from samebits.text.numbers import rounded_ulp

KINDS = ("crash", "silent", "api", "rounding")
"""Kinds of rules, the worst first."""

SKIPPED = frozenset({Verdict.EXPECTED, Verdict.ABSENT, Verdict.NOT_FINISHED, Verdict.NOT_OBSERVED})
"""Verdicts that are neither the same function nor, by themselves, a failure of the run."""


class Place(NamedTuple):
    """A place in the model's own code."""

    file: str
    """Relative to the model's folder."""
    line: int
    column: int
    n_more: int = 0
    """Further places of the same finding."""

    def __str__(self) -> str:
        """Return ``modeling_tiny.py:81:9``, with how many more there are."""
        more = f" and {self.n_more} more" if self.n_more else ""
        return f"{self.file}:{self.line}:{self.column}{more}"


class Beginning(NamedTuple):
    """Where a cell begins to differ."""

    statement: str
    """What decides, or the exception."""
    first: str = ""
    """The first difference in the order of data flow, if another one decides."""
    cause: str = ""
    """The first operation, mask or stored tensor that differs; '' if no cause was found."""
    places: tuple[str, ...] = ()
    """Modules and source lines."""

    @property
    def lines(self) -> list[str]:
        """All of it, a line each."""
        return [line for line in (self.statement, self.first, self.cause, *self.places) if line]


class Advice(NamedTuple):
    """A known defect, and what to do about it."""

    code: str
    title: str
    where: str
    remedy: str

    @property
    def heading(self) -> str:
        """Code, name and place."""
        return f"{self.title} ({self.where})" if self.where else self.title

    @property
    def lines(self) -> list[str]:
        """The defect and its remedy, a line each."""
        return [self.heading, f"remedy: {self.remedy}"]


def on_one_line(text: str) -> str:
    """Return a text without line breaks and repeated blanks."""
    return " ".join(text.split())


def beginning(cell: CellResult) -> Beginning:
    """Return where a cell begins to differ, with the module and the source lines."""
    statement, first = on_one_line(cell_in_short(cell)), ""
    if cell.deciding is not None and cell.first is not None:
        first = f"differs first: {on_one_line(rounded_ulp(cell.first.what))}"
    cause = shown_cause(cell)
    if cause is not None:
        places = [
            f"in {side.stack}: {', '.join(filter(None, (side.module, side.source)))}"
            for side in (cause.candidate, cause.reference)
            if side and (side.module or side.source)
        ]
        what = "begins" if cause.decides else f"another difference, {place(cause)}, begins"
        begins = f"{what}: {on_one_line(cause.headline)}"
        return Beginning(statement, first, begins, tuple(places))
    frame = cell.failure.place if cell.failure is not None else None
    if frame is None:
        return Beginning(statement, first)
    return Beginning(statement, first, "", (f"at {frame.file}:{frame.line} in {frame.function}",))


def advice(cells: Iterable[CellResult], report: Report) -> list[Advice]:
    """Return the known defects that explain the verdict on some cells, the worst kind first."""
    cells = list(cells)
    explained = [(e, cell) for cell in cells for e in cell.explained_by]
    where = {e.code: _explained_at(e, cell) for e, cell in reversed(explained)}
    texts = [text for text in report.rules if text.scope == "model" and text.code in where]
    texts.sort(key=lambda text: KINDS.index(text.kind))
    return [
        Advice(
            text.code,
            plain_title(text),
            where[text.code],
            on_one_line(remedy_as_seen(text, cells)),
        )
        for text in texts
    ]


def mended(cells: Iterable[CellResult], report: Report) -> dict[str, tuple[str, ...]]:
    """Return what to change so that some cells are equal, the worst kind first: a defect -> others that go with it.

    A remedy that leaves it to that of another defect is none of its own, even where its defect explains no verdict.
    """
    cells = list(cells)
    texts = {text.code: text for text in report.rules if text.scope == "model"}
    order = sorted(texts, key=lambda code: KINDS.index(texts[code].kind))
    explaining = [code for code in order if code in explaining_codes(cells)]
    shown = {finding.code for cell in cells for finding in cell.findings}
    named = {
        code: [each for each in explaining if each != code and each in text.remedy]
        for code, text in texts.items()
    }
    changes: dict[str, tuple[str, ...]] = {}
    for code in [*explaining, *(c for c in order if c in shown and c not in explaining)]:
        root = next((each for each in named[code] if not named[each]), "")
        if root:
            changes[root] = (*changes.get(root, ()), code)
        elif code in explaining:
            changes.setdefault(code, ())
    return changes


def remedy_as_seen(text: RuleText, cells: Iterable[CellResult]) -> str:
    """Return what a page says of the names that the evidence of these cells has, else its remedy.

    Where some findings have no such name, the remedy stands first, and then what the others need.
    """
    if text.kind == "crash":  # such a page lists names of an exception
        return text.remedy
    shown = [finding for cell in cells for finding in cell.findings if finding.code == text.code]
    steps = {f.where: replacements(text, " ".join((f.where, *f.evidence))) for f in shown}
    if not all(steps.values()):
        named = (f"for {w}, {step}" for w, all_of in steps.items() for step in all_of.values())
        return " ".join((text.remedy, *map(_sentence, named)))
    each = dict.fromkeys(step for named in steps.values() for step in named.values())
    return _sentence(", and ".join(each)) if each else text.remedy


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def replacements(text: RuleText, words: str) -> dict[str, str]:
    """Return name -> replacement, of the names of a rule about many that stand in some words."""
    named = (name for name in text.instead if re.search(rf"\b{re.escape(name)}\b", words))
    return {name: text.instead[name] for name in named}


def explaining_codes(cells: Iterable[CellResult]) -> set[str]:
    """Return the codes of the defects that explain the verdicts on some cells."""
    return {explanation.code for cell in cells for explanation in cell.explained_by}


def _explained_at(explanation: Explanation, cell: CellResult) -> str:
    if explanation.stack == cell.cell.stack:
        return explanation.where
    return f"{explanation.where}, in the reference {explanation.stack}"


def why_skipped(cell: CellResult) -> str:
    """Return why a cell neither passes nor fails; '' if it does."""
    if cell.verdict not in SKIPPED or fails(cell):
        return ""
    reasons = {
        Verdict.EXPECTED: "; ".join(cell.expected),
        Verdict.ABSENT: cell.absent,
        Verdict.NOT_FINISHED: cell.open_reason,
    }
    return f"{verdict_word(cell)}: {on_one_line(reasons.get(cell.verdict) or cell.headline)}"
