"""Which differences does matrix.yaml expect, and which of them no longer occur?"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from samebits.diagnose.failing import differing_signals, failing_signals
from samebits.records.ids import Verdict
from samebits.records.report import ExpectedReport

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from samebits.matrix.spec import Expected
    from samebits.records.comparison import CellResult
    from samebits.records.ids import CellId

Kind = Literal["differs", "diverged", "unstable", "failed", "not observed"]
Item = tuple[Literal["model", "stack"], str]

KINDS: dict[Kind, frozenset[Verdict]] = {
    "differs": frozenset({Verdict.DIFFERS, Verdict.DIVERGED}),
    "diverged": frozenset({Verdict.DIVERGED}),
    "unstable": frozenset({Verdict.UNSTABLE}),
    "failed": frozenset({Verdict.FAILED}),
    "not observed": frozenset({Verdict.NOT_OBSERVED}),
}
"""What an entry's ``verdict`` covers.

``differs`` covers every difference that fails a run. No kind covers rounding: it passes without an
entry, and whether a cell rounds or is identical depends on the CPU. Nor does one cover that a cell
did not finish: that is of the machine, and the next run may finish.
"""

DIFFERENCES: frozenset[Kind] = frozenset({"differs", "diverged"})
"""Kinds that say something of a cell beside its reference, and not of the cell alone."""

_OPEN = frozenset({Verdict.NOT_FINISHED, Verdict.NOT_OBSERVED})
UNTELLING: dict[Kind, frozenset[Verdict]] = {
    "differs": _OPEN | {Verdict.UNSTABLE, Verdict.FAILED, Verdict.REFERENCE},
    "diverged": _OPEN | {Verdict.UNSTABLE, Verdict.FAILED, Verdict.REFERENCE, Verdict.DIFFERS},
    "unstable": _OPEN | {Verdict.FAILED},
    "failed": _OPEN | {Verdict.UNSTABLE},
    "not observed": frozenset(
        {Verdict.UNSTABLE, Verdict.FAILED, Verdict.REFERENCE, Verdict.NOT_FINISHED}
    ),
}
"""Verdicts that do not tell whether an expected difference is gone.

A cell that failed may still differ; one that became the reference is compared with nothing. Where
the release does not know the model there is nothing to differ, which proves nothing by itself.
"""


def apply_expected(
    results: Sequence[CellResult],
    rules: Sequence[Expected],
    plan: Collection[CellId],
    reference: str,
) -> tuple[tuple[CellResult, ...], tuple[ExpectedReport, ...]]:
    """Return the results with expected differences marked, and a report on every entry.

    ``plan`` is every cell of the matrix, those that this run's filters left out included: an
    entry's model or stack is `fixed` only if all cells that it speaks of were run, none of
    them shows the difference, and every one of them could have. A cell that was compared with another
    than in a whole run could not, and no entry covers its difference, which is another one:
    ``reference`` is the stack of the matrix's reference.
    """
    elsewhere = _compared_elsewhere(results, plan, reference)
    entries = [_Entry(rule, results, plan, elsewhere) for rule in rules]
    covered = {result.cell: _covering(result, entries) for result in results}
    reports = tuple(entry.report(covered) for entry in entries)
    fixed = {cell for entry in entries for cell in entry.fixed_cells()}
    applied = (_applied(r, covered[r.cell], fixed, _of_failure(r, entries)) for r in results)
    return tuple(applied), reports


def _compared_elsewhere(
    results: Sequence[CellResult], plan: Collection[CellId], reference: str
) -> frozenset[CellId]:
    """Return the cells whose reference may be another than in a run that leaves no cell out."""
    ran = {result.cell for result in results}
    partial = {(cell.model, str(cell.variant)) for cell in plan if cell not in ran}
    return frozenset(
        result.cell
        for result in results
        if (result.cell.model, str(result.cell.variant)) in partial
        and (result.reference is None or result.reference.stack != reference)
    )


@dataclass(frozen=True, eq=False)
class _Entry:
    """One entry of ``expected`` beside the results of a run."""

    rule: Expected
    results: Sequence[CellResult]
    plan: Collection[CellId]
    elsewhere: frozenset[CellId]
    """Cells that were compared with another than in a whole run."""

    @cached_property
    def spoken_of(self) -> list[CellResult]:
        """The results of the cells that the entry speaks of."""
        return [result for result in self.results if self._speaks_of(result.cell)]

    @cached_property
    def planned(self) -> list[CellId]:
        """The cells that the entry speaks of, those that did not run included."""
        return [cell for cell in self.plan if self._speaks_of(cell)]

    @cached_property
    def fixed_items(self) -> list[Item]:
        """The items that were looked for everywhere and occur nowhere."""
        return [item for item in self.items if self._is_fixed(item)]

    @property
    def items(self) -> list[Item]:
        """The entry's models and stacks, each of which must still occur."""
        models: list[Item] = [("model", name) for name in self.rule.model]
        return [*models, *(("stack", name) for name in self.rule.stack)]

    def occurs_in(self, result: CellResult) -> bool:
        """Return True if the cell shows the difference, be it among others."""
        return any(self.covers(result, part) for part in _parts(result))

    def covers(self, result: CellResult, part: _Part) -> bool:
        """Return True if the entry is about this part of what a cell shows."""
        if not self._speaks_of(result.cell) or part.verdict not in KINDS[self.rule.verdict]:
            return False
        if self._is_untold(result.cell):
            return False
        signals = part.signals or part.shown
        return not signals or any(_matches(signal, self.rule.signal) for signal in signals)

    def fixed_cells(self) -> list[CellId]:
        """Return the cells that a fixed item speaks of."""
        fixed = self.fixed_items
        return [r.cell for r in self.spoken_of if any(_is_of(i, r.cell) for i in fixed)]

    def report(self, covered: dict[CellId, list[_Entry]]) -> ExpectedReport:
        """Return what the run says of this entry."""
        rule = self.rule
        return ExpectedReport(
            line=rule.line,
            text=_text(rule),
            reason=rule.reason,
            reference=rule.reference,
            title=rule.title,
            explanation=rule.explanation,
            cells=tuple(str(cell) for cell, entries in covered.items() if self in entries),
            fixed=tuple(name for _, name in self.fixed_items),
            untold=tuple(str(r.cell) for r in self.spoken_of if self._is_untold(r.cell)),
            evaluated=bool(self.spoken_of),
        )

    def _is_fixed(self, item: Item) -> bool:
        ran = [result for result in self.spoken_of if _is_of(item, result.cell)]
        planned = {cell for cell in self.planned if _is_of(item, cell)}
        untelling = UNTELLING[self.rule.verdict]
        return (
            any(result.judged != Verdict.ABSENT for result in ran)
            and planned <= {result.cell for result in ran}
            and not any(self.occurs_in(result) or result.judged in untelling for result in ran)
            and not any(self._is_shared(result) for result in ran)
            and not any(self._is_untold(result.cell) for result in ran)
        )

    def _is_shared(self, result: CellResult) -> bool:
        """Return True if the cell fails as its reference does, which no verdict of it says."""
        return self.rule.verdict == "failed" and bool(result.shared_failures)

    def _is_untold(self, cell: CellId) -> bool:
        """Return True if the entry is about another comparison than the one that was made."""
        return self.rule.verdict in DIFFERENCES and cell in self.elsewhere

    def _speaks_of(self, cell: CellId) -> bool:
        rule = self.rule
        return (
            _matches(cell.model, rule.model)
            and _matches(cell.stack, rule.stack)
            and _matches(str(cell.variant), rule.variant)
        )


def _is_of(item: Item, cell: CellId) -> bool:
    return fnmatchcase(cell.model if item[0] == "model" else cell.stack, item[1])


class _Part(NamedTuple):
    """Something that a cell shows and that an entry has to cover by itself."""

    verdict: Verdict
    signals: list[str]
    """The signals that the entries have to name together."""
    shown: list[str]
    """The signals of which an entry has to name one, where none has to be named."""


def _parts(result: CellResult) -> list[_Part]:
    """Return what a cell shows: its verdict, and what the phases observed that did not raise.

    That a cell did not finish is covered by no entry, so only the rest of it is a part.
    """
    if result.judged == Verdict.UNSTABLE:
        return [_Part(result.judged, _unstable_signals(result), [])]
    differing = [found.signal for found in differing_signals(result)]
    failing: list[str] = [found.signal for found in failing_signals(result)]
    if result.rest is None:
        return [_Part(result.judged, failing, list(differing))]
    parts = [_Part(result.judged, [], [])] if result.judged != Verdict.NOT_FINISHED else []
    if result.rest.passes:
        return parts
    return [*parts, _Part(result.rest, failing, list(differing))]


def _unstable_signals(result: CellResult) -> list[str]:
    names = (name.partition(" ")[0] for name in result.unstable)
    return list(dict.fromkeys(name.rstrip(":") for name in names if name != "status:"))


def _covering(result: CellResult, entries: Iterable[_Entry]) -> list[_Entry]:
    """Return the entries that cover a cell together; none if they leave a part or a signal over."""
    entries = list(entries)
    found: dict[_Entry, None] = {}
    for part in _parts(result):
        covering = _of_part(result, part, entries)
        if not covering:
            return []
        found.update(dict.fromkeys(covering))
    return list(found)


def _of_part(result: CellResult, part: _Part, entries: Iterable[_Entry]) -> list[_Entry]:
    """Return the entries that cover one part together; none if they leave a signal over."""
    found = [entry for entry in entries if entry.covers(result, part)]
    patterns = tuple(pattern for entry in found for pattern in entry.rule.signal)
    return found if all(_matches(signal, patterns) for signal in part.signals) else []


def _applied(
    result: CellResult, entries: list[_Entry], fixed: set[CellId], failure: list[_Entry]
) -> CellResult:
    """Return a result as expected or fixed, if it is; ``failure`` are entries for its failure alone."""
    reasons = tuple(dict.fromkeys(entry.rule.reason for entry in entries or failure))
    if entries and result.judged != Verdict.NOT_FINISHED:
        return result.model_copy(update={"verdict": Verdict.EXPECTED, "expected": reasons})
    if entries or failure:
        return result.model_copy(update={"expected": reasons})
    if result.cell in fixed and result.judged == Verdict.IDENTICAL:
        return result.model_copy(update={"verdict": Verdict.FIXED})
    return result


def _of_failure(result: CellResult, entries: Iterable[_Entry]) -> list[_Entry]:
    """Return the entries that cover the failure of a cell whose rest they do not cover."""
    if result.judged != Verdict.FAILED or result.rest is None:
        return []
    return _of_part(result, _parts(result)[0], entries)


@cache
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return True if one fits; kept, as every entry is asked about every cell several times."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _text(rule: Expected) -> str:
    told = {
        "model": rule.model,
        "variant": rule.variant,
        "stack": rule.stack,
        "signal": rule.signal,
    }
    parts = [f"{key} {', '.join(names)}" for key, names in told.items() if names != ("*",)]
    return f"{rule.verdict}: {'; '.join(parts)}"
