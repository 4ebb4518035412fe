"""The causes of one night: what differs or raises, one group for each cause, whatever the models are called.

A sign is a text that two cells of one cause have in common: the place where they begin to differ, or the lines that
changed there. Signs have no line numbers, no figures and no name of a stack. What only rounds has none: the place
is that of the first difference that is larger than rounding, so that it does not depend on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from samebits.base.digests import digest_of
from samebits.jobs.cells import NOT_STARTED
from samebits.records.capture import Failure
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import Report
from samebits.records.trace import FAMILY, GIVEN, Cause, SourceDiff
from samebits.reports.cell.cause import shown_cause
from samebits.reports.plain import on_one_line
from samebits.reports.stories import is_reference
from samebits.watch.records import Kind

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)*")
_COMMIT = re.compile(r"\+git\.([0-9a-f]+)")
_OF_CALLER = GIVEN | {"argument"}
"""Kinds whose place is a function that does the same on both sides: who calls it differs."""
_OPEN = {Verdict.NOT_FINISHED, Verdict.NOT_OBSERVED}
_DIFFERENT = {Verdict.DIVERGED, Verdict.UNDECIDED}
_SAME = {Verdict.IDENTICAL, Verdict.ROUNDING, Verdict.EXPECTED}


class Group(NamedTuple):
    """The cells of one cause."""

    kind: Kind
    signs: tuple[str, ...]
    cells: tuple[CellResult, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Its models."""
        return tuple(sorted({cell.cell.model for cell in self.cells}))

    @property
    def is_known(self) -> bool:
        """True if the float64 check tells that something else is computed, or that it raises."""
        return any(cell.failure or cell.compared is not Verdict.UNDECIDED for cell in self.cells)


class Night(NamedTuple):
    """What one run of the chosen models shows of main."""

    commit: str = ""
    """Of main; '' if it is not known."""
    reference: str = ""
    """The release."""
    groups: tuple[Group, ...] = ()
    models: frozenset[str] = frozenset()
    """All that were chosen."""
    computes: frozenset[str] = frozenset()
    """Those whose forward ran in every variant."""
    same: frozenset[str] = frozenset()
    """Those that compute the same in every variant, up to rounding."""
    blocked: tuple[tuple[str, str], ...] = ()
    """Models that could not be looked at, with the reason."""


def night_of(report: Report) -> Night:
    """Return the night of a report whose last environment is main."""
    main, reference = report.stacks[-1], next(s for s in report.stacks if s.id == report.reference)
    match = _COMMIT.search(main.transformers or "")
    cells: dict[str, list[CellResult]] = {}
    blocked: dict[str, str] = {}
    for row in report.rows:
        by_stack = {cell.cell.stack: cell for cell in row.cells}
        cell, base = by_stack.get(main.id), by_stack.get(reference.id)
        cells.setdefault(row.model, [])
        if reason := main.failure or _blocked(cell, base):
            blocked.setdefault(row.model, on_one_line(reason))
        elif cell is not None:
            cells[row.model].append(cell)
    watched = {model: results for model, results in cells.items() if model not in blocked}
    verdicts = {model: {cell.compared for cell in results} for model, results in watched.items()}
    computes = {m for m, results in watched.items() if not any(cell.failure for cell in results)}
    return Night(
        commit=match[1] if match else "",
        reference=reference.transformers or reference.id,
        groups=tuple(grouped(cell for results in watched.values() for cell in results)),
        models=frozenset(cells),
        computes=frozenset(computes),
        same=frozenset(m for m in computes if verdicts[m] <= _SAME),
        blocked=tuple(sorted(blocked.items())),
    )


def _blocked(cell: CellResult | None, base: CellResult | None) -> str:
    """Return why nothing follows for a row; '' if something does."""
    if cell is None or base is None:
        return "it was not run"
    if not is_reference(base):
        return f"the release itself: {base.headline}"
    if cell.failure is not None and cell.failure.type == NOT_STARTED:
        return cell.failure.message
    if cell.verdict in _OPEN or (cell.failure is not None and cell.failure.may_be_the_machine):
        return cell.open_reason or cell.headline
    return ""


def grouped(cells: Iterable[CellResult]) -> Iterator[Group]:
    """Yield a group for each cause, whatever the order of cells: those with a sign in common are of one."""
    groups: list[tuple[Kind, set[str], list[CellResult]]] = []
    for cell in sorted(cells, key=lambda c: str(c.cell)):
        for kind, signs in _signs(cell):
            met = [g for g in groups if g[0] == kind and g[1] & signs]
            groups = [g for g in groups if g not in met]
            members = [c for g in met for c in g[2]]
            groups.append((kind, signs.union(*(g[1] for g in met)), [*members, cell]))
    for kind, group_signs, members in sorted(groups, key=lambda g: min(g[1])):
        yield Group(kind, tuple(sorted(group_signs)), tuple(members))


def _signs(cell: CellResult) -> Iterator[tuple[Kind, set[str]]]:
    """Yield the causes of a cell with their signs."""
    model = cell.cell.model
    if cell.verdict is Verdict.ABSENT:
        yield "absent", {f"{model} is absent"}
    if cell.verdict.passes:
        return
    if cell.failure is not None:
        yield "raises", set(_of_failure(cell.failure))
    if cell.compared is Verdict.UNSTABLE:
        yield "differs", {f"{model} is unstable: {_general(', '.join(cell.unstable_signals))}"}
    elif cell.compared in _DIFFERENT:
        yield "differs", set(_of_cause(shown_cause(cell), model)) or set(_unexplained(cell))


def _of_failure(failure: Failure) -> Iterator[str]:
    frames = [f for f in failure.frames if f.file.startswith("transformers/")]
    file = frames[-1].file if frames else ""
    if frames and not FAMILY.match(file):
        yield f"{failure.type} in {file}: {frames[-1].function}"
    yield f"{failure.type}: {_general(failure.in_short, file)}"


def _of_cause(cause: Cause | None, model: str) -> Iterator[str]:
    if cause is None:
        return
    side = cause.candidate if cause.candidate.source or not cause.reference else cause.reference
    file = side.source.rpartition(":")[0]
    what = f"{cause.kind} {side.op or _general(side.tensor)}"
    for diff in cause.diffs[:1]:
        yield f"{what}, changed lines {_lines(diff)}"
    if cause.kind not in _OF_CALLER or not cause.diffs:
        where = f"{file}: {side.function}" if file else model
        yield f"{what} in {where}"
    if file:
        yield f"{model} in {file}: {side.function}"


def _unexplained(cell: CellResult) -> Iterator[str]:
    """Yield the defects that explain a difference without a cause, else where it shows."""
    yield from (f"finding {defect.code}" for defect in cell.explained_by)
    if not cell.explained_by and (first := cell.decisive) is not None:
        yield f"{cell.cell.model}: {first.signal}"
    elif not cell.explained_by:
        yield f"{cell.cell.model}: {cell.judged}"


def _lines(diff: SourceDiff) -> str:
    """Return a digest of the lines that changed, which copies of one function have in common."""
    changed = [line for line in diff.diff.splitlines() if line[:1] in "+-"]
    file = (diff.candidate or diff.reference).rpartition(":")[0]
    return digest_of([" ".join(_named_alike(line, file).split()) for line in changed])[:12]


def _general(text: str, file: str = "") -> str:
    return _NUMBER.sub("N", _named_alike(text, file))


def _named_alike(text: str, file: str) -> str:
    """Return a text with * for the name of the model whose file it is from."""
    family = FAMILY.match(file)
    if family is None:
        return text
    name = "_?".join(map(re.escape, family[1].split("_")))
    return re.sub(rf"(?<![A-Za-z])(?i:{name})(?![a-z])", "*", text)
