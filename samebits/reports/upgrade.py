"""What an upgrade from one stack to another changes, row by row, the most severe first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

from samebits.diagnose.bands import AS_REFERENCE, has_bits, verdict_of
from samebits.records.comparison import CellResult
from samebits.records.compat import Step
from samebits.records.finding import RuleText
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.answer import of_cell
from samebits.reports.commands import compare_two
from samebits.reports.stories import cell_in_short, row_name
from samebits.text.numbers import count, plural

MAX_ALL_PAIRS = 6
"""Stacks up to which every pair has a page; beyond, neighbours and each stack to the newest."""

KINDS: dict[Step, tuple[str, Verdict, str]] = {
    "fails": ("fails", Verdict.FAILED, "it raises an exception that it did not raise before"),
    "fails otherwise": ("still fails", Verdict.FAILED, "both fail, with a different exception"),
    "diverged": (
        "behaviour change",
        Verdict.DIVERGED,
        "what it computes or returns changes by more than rounding",
    ),
    "unstable": ("unstable", Verdict.UNSTABLE, "two runs of the same cell differ"),
    "undecided": (
        "changes, not judged",
        Verdict.UNDECIDED,
        "the bits change; this run did not measure whether that is rounding",
    ),
    "open": ("not known", Verdict.NOT_OBSERVED, "one of the two cells was not compared"),
    "rounding": ("rounding", Verdict.ROUNDING, "the same function, rounded differently"),
    "works": ("fixed", Verdict.IDENTICAL, "it failed or was unstable before"),
    "new": ("new", Verdict.ABSENT, "only the later release has the architecture"),
    "gone": ("gone", Verdict.FAILED, "only the earlier release has the architecture"),
}
"""Kind of change -> its word, the verdict whose shape and colour it has, and its meaning."""

_HARMLESS: frozenset[Step] = frozenset({"rounding", "works", "new"})

ORDER: tuple[Step, ...] = (
    "gone",
    "fails",
    "diverged",
    "unstable",
    "undecided",
    "fails otherwise",
    "open",
    "rounding",
    "works",
    "new",
)
"""The kinds of change, the most severe first."""

_STEPS: dict[Verdict, Step] = {
    Verdict.ROUNDING: "rounding",
    Verdict.DIVERGED: "diverged",
    Verdict.UNDECIDED: "undecided",
}
_BROKEN = frozenset({Verdict.FAILED, Verdict.UNSTABLE})


class Change(NamedTuple):
    """One row whose result changes."""

    row: Row
    kind: Step
    before: CellResult
    after: CellResult
    judged: CellResult
    """The cell whose comparison with the row's reference shows the change."""
    caveat: str
    """What limits the statement; '' if nothing does."""

    @property
    def name(self) -> str:
        """Name of the row."""
        return row_name(self.row)

    @property
    def short(self) -> str:
        """The most important line about the change."""
        return cell_in_short(self.judged)

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the findings that explain the verdict in the later stack.

        A defect of the reference that neither stack has is none of them.
        """
        reference = self.after.reference
        gone = {
            explanation.code
            for explanation in self.before.explained_by
            if reference is not None
            and explanation.stack == reference.stack != self.before.cell.stack
        }
        return tuple(dict.fromkeys(e.code for e in self.after.explained_by if e.code not in gone))


class Upgrade(NamedTuple):
    """All changes between two stacks."""

    first: str
    last: str
    changes: tuple[Change, ...]
    """The most severe first."""
    n_same: int
    """Rows with the same bits on both."""
    n_rows: int
    """Rows with a cell on both."""

    @property
    def groups(self) -> list[tuple[Step, list[Change]]]:
        """The changes by kind, the most severe kind first."""
        return [
            (kind, [change for change in self.changes if change.kind == kind])
            for kind in ORDER
            if any(change.kind == kind for change in self.changes)
        ]

    @property
    def codes(self) -> dict[str, list[str]]:
        """Code of a finding -> the models that have it after the upgrade; of the worst change first."""
        models: dict[str, dict[str, None]] = {}
        for change in self.changes:
            for code in change.codes:
                models.setdefault(code, {})[change.row.model] = None
        return {code: list(names) for code, names in models.items()}

    @property
    def quiet(self) -> frozenset[Step]:
        """Kinds of changes that need no action, which are folded."""
        return _HARMLESS

    @property
    def harmless(self) -> frozenset[str]:
        """Codes of findings that explain no change of a function: nothing has to be done."""
        harmful = {
            code for change in self.changes if change.kind not in _HARMLESS for code in change.codes
        }
        return frozenset(self.codes) - harmful


def pairs(report: Report) -> list[tuple[str, str]]:
    """Return the pairs of stacks, earlier and later, that have a page."""
    stacks = [stack.id for stack in report.stacks]
    if len(stacks) <= MAX_ALL_PAIRS:
        return list(combinations(stacks, 2))
    to_newest = [(stack, stacks[-1]) for stack in stacks[:-1]]
    return list(dict.fromkeys([*pairwise(stacks), *to_newest]))


def default_pair(report: Report) -> tuple[str, str] | None:
    """Return the reference of the report and the last stack that was built; None for one stack."""
    stacks = [stack.id for stack in report.stacks if not stack.failure]
    if len(stacks) < 2:
        return None
    first = report.reference if report.reference in stacks[:-1] else stacks[0]
    return first, stacks[-1]


def upgrade(report: Report, first: str, last: str) -> Upgrade:
    """Return what changes in each row from one stack to another."""
    changes = []
    n_rows = n_same = 0
    for row in report.rows:
        cells = {cell.cell.stack: cell for cell in row.cells}
        if first not in cells or last not in cells:
            continue
        n_rows += 1
        change = change_between(row, cells[first], cells[last])
        if change is not None:
            changes.append(change)
        elif has_bits(cells[first]) and has_bits(cells[last]):
            n_same += 1
    changes.sort(key=lambda change: ORDER.index(change.kind))
    return Upgrade(first, last, tuple(changes), n_same, n_rows)


def ticket(report: Report, shown: Upgrade, rules: dict[str, RuleText]) -> str:
    """Return the changes as Markdown text for a ticket."""
    releases = f"{_release(report, shown.first)} → {_release(report, shown.last)}"
    lines = [f"transformers {releases} ({report.matrix}): {in_words(shown)}", ""]
    for kind, changes in shown.groups:
        if kind == "new":
            continue
        word, _, meaning = KINDS[kind]
        lines.append(f"**{word}** ({meaning}):")
        lines += [f"- {change.name}: {_in_a_line(change, report)}" for change in changes]
        lines.append("")
    lines += [
        f"- {code} {rules[code].name}: {rules[code].remedy}"
        for code in shown.codes
        if code in rules
    ]
    return "\n".join(
        [*lines, "", f"To reproduce: `{compare_two(report, shown.first, shown.last)}`"]
    )


def in_words(shown: Upgrade) -> str:
    """Return how many models change and how badly, in one sentence."""
    parts = []
    for kind, changes in shown.groups:
        models = {change.row.model for change in changes}
        parts.append(f"{KINDS[kind][0]}: {plural(len(models), 'model')}")
    changed = "; ".join(parts) if parts else "nothing changes"
    return f"{changed}; same bits: {count(shown.n_same)} of {plural(shown.n_rows, 'row')}."


def advice(change: Change, report: Report) -> tuple[str, str]:
    """Return which side is right and what to do; empty if nothing has to be done, or another release is compared."""
    cell = change.judged
    is_from_reference = cell.reference == change.before.cell and cell is change.after
    if change.kind in _HARMLESS or not is_from_reference:
        return "", ""
    answer = of_cell(cell, report)
    return answer.side.why, answer.do


def _in_a_line(change: Change, report: Report) -> str:
    side, do = advice(change, report)
    parts = (
        f"{change.short}{_codes(change)}",
        side and f"which side is right: {side}",
        do and f"to do: {do}",
    )
    return ". ".join(filter(None, parts))


def _codes(change: Change) -> str:
    return f" [{', '.join(change.codes)}]" if change.codes else ""


def _release(report: Report, id_: str) -> str:
    return next((s.transformers or id_ for s in report.stacks if s.id == id_), id_)


def change_between(row: Row, before: CellResult, after: CellResult) -> Change | None:
    """Return what changes between two cells of a row; None if nothing does."""
    for kind, judged, caveat in _kinds(row, before, after):
        return Change(row, kind, before, after, judged, caveat) if kind else None
    return None


def _kinds(
    row: Row, before: CellResult, after: CellResult
) -> Iterator[tuple[Step, CellResult, str]]:
    """Yield the kind of change, the cell that shows it, and a caveat; '' is no change."""
    absent = [cell.judged is Verdict.ABSENT for cell in (before, after)]
    if any(absent):
        yield ("" if all(absent) else "new" if absent[0] else "gone"), after, ""
    if after.judged in _BROKEN:
        yield _broken(before, after), after, ""
    if before.judged in _BROKEN and has_bits(after):
        yield "works", (before if verdict_of(after) in AS_REFERENCE else after), ""
    if not (has_bits(before) and has_bits(after)):
        yield "open", after, ""
    letters = {stack: band.does for band in row.bands for stack in band.stacks}
    if letters.get(before.cell.stack) == letters.get(after.cell.stack):
        yield "", after, ""
    yield _moved(row, before, after)


def _broken(before: CellResult, after: CellResult) -> Step:
    if before.judged is not after.judged:
        return "fails" if after.judged is Verdict.FAILED else "unstable"
    if after.judged is Verdict.UNSTABLE:
        return ""
    errors = [cell.failure and (cell.failure.phase, cell.failure.type) for cell in (before, after)]
    return "" if errors[0] == errors[1] else "fails otherwise"


def _moved(row: Row, before: CellResult, after: CellResult) -> tuple[Step, CellResult, str]:
    """Return the change between two cells with different bits, by what is known of each."""
    if {verdict_of(before), verdict_of(after)} <= AS_REFERENCE:
        return "", after, ""  # they differ in padding alone, which no verdict depends on
    if verdict_of(before) in AS_REFERENCE:
        return _STEPS[verdict_of(after)], after, ""
    if verdict_of(after) in AS_REFERENCE:
        return _STEPS[verdict_of(before)], before, f"back to the bits of {row.reference}"
    verdicts = {verdict_of(before), verdict_of(after)}
    caveat = f"both differ from {row.reference} and were not compared with each other"
    if verdicts == {Verdict.ROUNDING}:
        return "rounding", after, caveat
    if verdicts == {Verdict.ROUNDING, Verdict.DIVERGED}:
        diverged = before if verdict_of(before) is Verdict.DIVERGED else after
        return "diverged", diverged, caveat
    return "undecided", after, caveat
