"""Differences that matrix.yaml expects, and those of them that no longer occur."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import chain
from typing import Literal, NamedTuple

from samebits.compare.phases import DECODED, PROBE, exception_key, signals_of, word_and_prompt
from samebits.diagnose.exit_code import OPEN
from samebits.diagnose.failing import differing_signals, failing_signals
from samebits.matrix.plan import matches
from samebits.matrix.spec import Expected
from samebits.records.capture import Failure
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId, Verdict
from samebits.records.report import ExpectedReport

Kind = Literal["differs", "diverged", "unstable", "failed", "not observed"]
Item = tuple[Literal["model", "stack"], str]

KINDS: dict[Kind, frozenset[Verdict]] = {
    "differs": frozenset({Verdict.UNDECIDED, Verdict.DIVERGED}),
    "diverged": frozenset({Verdict.DIVERGED}),
    "unstable": frozenset({Verdict.UNSTABLE}),
    "failed": frozenset({Verdict.FAILED}),
    "not observed": frozenset({Verdict.NOT_OBSERVED}),
}
"""The verdicts that an entry's ``verdict`` covers.

``differs`` covers every difference that fails a run. No kind covers rounding: it passes without an
entry, and whether a cell rounds or is identical depends on the CPU. No kind covers a cell that did
not finish either: that depends on the machine, and the next run may finish.
"""

DIFFERENCES: frozenset[Kind] = frozenset({"differs", "diverged"})
"""Kinds that describe a comparison with the reference, and not the cell itself."""

_OF_THE_CELL = frozenset({Verdict.FAILED, Verdict.UNSTABLE})
"""Verdicts on a cell itself."""

INCONCLUSIVE: dict[Kind, frozenset[Verdict]] = {
    "differs": OPEN | {Verdict.UNSTABLE, Verdict.FAILED, Verdict.REFERENCE},
    "diverged": OPEN | {Verdict.UNSTABLE, Verdict.FAILED, Verdict.REFERENCE, Verdict.UNDECIDED},
    "unstable": OPEN | {Verdict.FAILED},
    "failed": OPEN | {Verdict.UNSTABLE, Verdict.FAILED},
    "not observed": frozenset(
        {Verdict.UNSTABLE, Verdict.FAILED, Verdict.REFERENCE, Verdict.NOT_FINISHED}
    ),
}
"""Verdicts that do not show whether an expected difference is gone.

A cell that failed may still differ, or raise behind what it raises now. A cell that became the
reference is not compared. In a release that does not know the model nothing can differ, which proves
nothing by itself.
"""


def apply_expected(
    results: Sequence[CellResult],
    rules: Sequence[Expected],
    plan: Collection[CellId],
    reference: str,
) -> tuple[tuple[CellResult, ...], tuple[ExpectedReport, ...]]:
    """Return the results with expected differences marked, and a report on every entry.

    ``plan`` is every cell of the matrix, including those that this run's filters left out. An
    entry's model or stack is `fixed` only if all cells that the entry matches were run, none of
    them shows the difference, and every one of them could have shown it. A cell that has another
    reference than in a whole run could not, and no entry covers its difference, because it is a
    different one. ``reference`` is the stack of the matrix's reference.
    """
    other_reference = _with_other_reference(results, plan, reference)
    entries = [_Entry(rule, results, plan, other_reference) for rule in rules]
    covered = {result.cell: _covering(result, entries) for result in results}
    reports = tuple(entry.report(covered) for entry in entries)
    fixed = {cell for entry in entries for cell in entry.fixed_cells()}
    marked = (_with_expectation(r, covered[r.cell], fixed, entries) for r in results)
    return tuple(marked), reports


def _with_other_reference(
    results: Sequence[CellResult], plan: Collection[CellId], reference: str
) -> frozenset[CellId]:
    """Return the cells whose reference may differ from that of a run without filters.

    A cell that was left out takes the place of a sound reference only if it is older, or of ``reference``:
    see ``choose_reference`` of samebits/diagnose/verdict.py.
    """
    by_cell = {result.cell: result for result in results}
    order = {cell: i for i, cell in enumerate(plan)}
    left_out: dict[tuple[str, str], list[CellId]] = {}
    for cell in order.keys() - by_cell.keys():
        left_out.setdefault(_row_of(cell), []).append(cell)

    def is_other(result: CellResult) -> bool:
        rivals, chosen = left_out.get(_row_of(result.cell), []), result.reference
        if not rivals or (chosen is not None and chosen.stack == reference):
            return False
        own = by_cell.get(chosen) if chosen is not None else None
        if own is None or own.failures or own.unfinished is not None:
            return True
        return any(each.stack == reference or order[each] < order[own.cell] for each in rivals)

    return frozenset(result.cell for result in results if is_other(result))


def _row_of(cell: CellId) -> tuple[str, str]:
    return cell.model, str(cell.variant)


@dataclass(frozen=True, eq=False)
class _Entry:
    """One entry of ``expected``, with the results of a run."""

    rule: Expected
    results: Sequence[CellResult]
    plan: Collection[CellId]
    other_reference: frozenset[CellId]
    """Cells whose reference differs from that of a whole run."""

    @cached_property
    def matching_results(self) -> list[CellResult]:
        """The results of the cells that the entry matches."""
        return [result for result in self.results if matches(self.rule, result.cell)]

    @cached_property
    def planned(self) -> list[CellId]:
        """The cells that the entry matches, including those that did not run."""
        return [cell for cell in self.plan if matches(self.rule, cell)]

    @cached_property
    def fixed_items(self) -> list[Item]:
        """The items that could have occurred in every cell and occur in none."""
        return [item for item in self.items if self._is_fixed(item)]

    @property
    def items(self) -> list[Item]:
        """The entry's models and stacks, each of which must still occur."""
        models: list[Item] = [("model", name) for name in self.rule.model]
        return [*models, *(("stack", name) for name in self.rule.stack)]

    def occurs_in(self, result: CellResult) -> bool:
        """Return True if the cell shows the difference, possibly among others."""
        return any(self.covers(result, part) for part in _result_parts(result))

    def covers(self, result: CellResult, part: _ResultPart) -> bool:
        """Return True if the entry covers this part of the result of a cell."""
        if not matches(self.rule, result.cell) or part.verdict not in KINDS[self.rule.verdict]:
            return False
        if self._is_not_judged(result.cell):
            return False
        signals = part.signals or part.shown
        return not signals or any(_matches(signal, self.rule.signal) for signal in signals)

    def fixed_cells(self) -> list[CellId]:
        """Return the cells that a fixed item matches."""
        fixed = self.fixed_items
        return [
            r.cell for r in self.matching_results if any(_item_matches(i, r.cell) for i in fixed)
        ]

    def report(self, covered: dict[CellId, list[_Entry]]) -> ExpectedReport:
        """Return the report of the run on this entry."""
        rule = self.rule
        return ExpectedReport(
            line=rule.line,
            text=_rule_text(rule),
            reason=rule.reason,
            reference=rule.reference,
            title=rule.title,
            explanation=rule.explanation,
            cells=tuple(str(cell) for cell, entries in covered.items() if self in entries),
            fixed=tuple(name for _, name in self.fixed_items),
            untold=tuple(str(r.cell) for r in self.matching_results if self._is_not_judged(r.cell)),
            evaluated=bool(self.matching_results),
        )

    def _is_fixed(self, item: Item) -> bool:
        ran = [result for result in self.matching_results if _item_matches(item, result.cell)]
        planned = {cell for cell in self.planned if _item_matches(item, cell)}
        inconclusive = INCONCLUSIVE[self.rule.verdict]
        return (
            any(result.judged != Verdict.ABSENT for result in ran)
            and planned <= {result.cell for result in ran}
            and not any(self.occurs_in(result) or result.judged in inconclusive for result in ran)
            and not any(self._is_shared(result) for result in ran)
            and not any(self._is_not_judged(result.cell) for result in ran)
        )

    def _is_shared(self, result: CellResult) -> bool:
        """Return True if the cell fails like its reference, which its verdict does not show."""
        return self.rule.verdict == "failed" and bool(result.shared_failures)

    def _is_not_judged(self, cell: CellId) -> bool:
        """Return True if the entry describes a comparison with another reference."""
        return self.rule.verdict in DIFFERENCES and cell in self.other_reference


def _item_matches(item: Item, cell: CellId) -> bool:
    return fnmatchcase(cell.model if item[0] == "model" else cell.stack, item[1])


class _ResultPart(NamedTuple):
    """A part of a result that an entry has to cover by itself."""

    verdict: Verdict
    signals: list[str]
    """The signals that the entries have to name together."""
    shown: list[str]
    """The signals of which an entry has to name at least one, if none has to be named."""
    failure: Failure | None = None
    """The exception that it is; None: it is what was compared."""


def _result_parts(result: CellResult) -> list[_ResultPart]:
    """Return the parts of a result: its verdict, and the verdict on the phases that did not raise.

    No entry covers that a cell did not finish, so only the rest of such a cell is a part.
    """
    if result.judged == Verdict.UNSTABLE:
        unstable = _ResultPart(result.judged, list(result.unstable_signals), [])
        return [unstable, *_raised_parts(result)]
    differing = [signal.signal for signal in differing_signals(result)]
    failing: list[str] = [signal.signal for signal in failing_signals(result)]
    parts = _raised_parts(result) if result.judged == Verdict.FAILED else []
    if result.rest is None:
        return parts or [_ResultPart(result.judged, failing, list(differing))]
    if not parts and result.judged != Verdict.NOT_FINISHED:
        parts = [_ResultPart(result.judged, [], [])]
    if result.rest.passes:
        return parts
    return [*parts, _ResultPart(result.rest, failing, list(differing))]


def _raised_parts(result: CellResult) -> list[_ResultPart]:
    """Return a part for each exception of a cell; the same one of later phases is no other."""
    first: dict[tuple[str, ...], Failure] = {}
    for failure in result.failures:
        first.setdefault(exception_key(failure)[1:], failure)
    return [_ResultPart(Verdict.FAILED, [], _raised_signals(f.phase), f) for f in first.values()]


def _raised_signals(phase: str) -> list[str]:
    """Return the signals that an exception left unobserved.

    Without them an entry for a `generate()` that raises would cover a forward or a load that raises.
    """
    word, place = word_and_prompt(phase)
    if word == PROBE:
        return [place.partition(".")[0]] if place else []
    signals = signals_of(phase)
    return sorted(signals - DECODED or signals) or ["load"]


def _covering(result: CellResult, entries: Iterable[_Entry]) -> list[_Entry]:
    """Return the entries that together cover a cell; none if a part or a signal is left over."""
    entries = list(entries)
    used: dict[_Entry, None] = {}
    for part in _result_parts(result):
        part_entries = _covering_part(result, part, entries)
        if not part_entries:
            return []
        used.update(dict.fromkeys(part_entries))
    return list(used)


def _covering_part(
    result: CellResult, part: _ResultPart, entries: Iterable[_Entry]
) -> list[_Entry]:
    """Return the entries that together cover one part; none if a signal is left over."""
    covering = [entry for entry in entries if entry.covers(result, part)]
    patterns = tuple(pattern for entry in covering for pattern in entry.rule.signal)
    return covering if all(_matches(signal, patterns) for signal in part.signals) else []


def _with_expectation(
    result: CellResult, covering: list[_Entry], fixed: set[CellId], entries: Iterable[_Entry]
) -> CellResult:
    """Return a result marked as expected or fixed, if it is; ``covering`` cover all of it."""
    update: dict[str, object] = {}
    if covering:
        update["expected"] = _reasons(covering)
        if result.judged != Verdict.NOT_FINISHED:
            update["verdict"] = Verdict.EXPECTED
    elif result.judged in _OF_THE_CELL:
        update = _covered_in_part(result, entries)
    elif result.cell in fixed and result.judged == Verdict.IDENTICAL:
        update["verdict"] = Verdict.FIXED
    return result.model_copy(update=update) if update else result


def _covered_in_part(result: CellResult, entries: Iterable[_Entry]) -> dict[str, object]:
    """Return what an entry covers of a cell that raises or is unstable, though none covers its rest."""
    own = [part for part in _result_parts(result) if part.verdict in _OF_THE_CELL]
    covering = [_covering_part(result, part, entries) for part in own]
    if not any(covering):
        return {}
    uncovered = (p.failure for p, c in zip(own, covering, strict=True) if p.failure and not c)
    return {"expected": _reasons(chain.from_iterable(covering)), "failures": tuple(uncovered)}


def _reasons(entries: Iterable[_Entry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entry.rule.reason for entry in entries))


@cache
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return True if a pattern matches. Cached: each entry checks every signal several times."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _rule_text(rule: Expected) -> str:
    patterns = {
        "model": rule.model,
        "variant": rule.variant,
        "environment": rule.stack,
        "signal": rule.signal,
    }
    parts = [f"{key} {', '.join(names)}" for key, names in patterns.items() if names != ("*",)]
    return f"{rule.verdict}: {'; '.join(parts)}"
