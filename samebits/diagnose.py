"""What is the verdict on a cell, and where does the difference begin?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare import changes, compare, disagreements, never_written
from samebits.comparison import CellResult, SignalComparison, TokenSplit
from samebits.diagnosing.amounts import figure, some
from samebits.diagnosing.ending import exit_code
from samebits.diagnosing.expected import apply_expected
from samebits.diagnosing.first import first_difference, token_splits
from samebits.diagnosing.hunt import steps
from samebits.diagnosing.notes import notes
from samebits.words import EXPLANATORY, Signal, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.capture import Capture, Failure
    from samebits.compare import TensorSource
    from samebits.finding import Step
    from samebits.words import CellId

__all__ = [
    "Runs",
    "apply_expected",
    "choose_reference",
    "exit_code",
    "result",
]

Runs = tuple["Capture", ...]
"""What a cell's runs left: ``a`` and ``b``."""

ENOUGH: frozenset[Signal] = frozenset({"weights", "hidden_states", "logits"})
"""Without one of these compared, no cell is called identical."""


def choose_reference(cells: Mapping[CellId, Runs], stack: str) -> CellId | None:
    """Return the cell that the others are compared with, of one model in one variant.

    ``cells`` are in the order of the stacks, oldest first. It is the cell of ``stack``, the
    matrix's reference, or else the oldest, that is complete and agrees with itself.
    """
    sound = [cell for cell, runs in cells.items() if _own_verdict(cell, runs) is None]
    return next((cell for cell in sound if cell.stack == stack), sound[0] if sound else None)


def result(
    cell: CellId,
    runs: Runs,
    reference: Runs | None,
    values: TensorSource,
    *,
    reproduce: str = "",
) -> CellResult:
    """Return the verdict on a cell, with all that was found on the way to it.

    ``reference`` are the runs of the reference cell, which may be this one; None: there is none.
    """
    own = _own_verdict(cell, runs, values)
    if own is not None:
        own = own.model_copy(update={"reference": reference[0].cell if reference else None})
        own = own.model_copy(update={"steps": _steps_of_unstable(own, runs, reference, values)})
        return own.model_copy(update={"reproduce": reproduce})
    if reference is None:
        headline = "there is no complete and stable cell to compare with"
        found = _plain(cell, Verdict.FAILED, headline)
    elif reference[0].cell == cell:
        found = _plain(cell, Verdict.REFERENCE, "the other stacks are compared with this one")
    else:
        return _compared(reference[0], runs[0], values, reproduce)
    told = {"notes": notes(runs[0]), "skips": runs[0].skips, "reproduce": reproduce}
    return found.model_copy(update=told)


def _steps_of_unstable(
    found: CellResult, runs: Runs, reference: Runs | None, values: TensorSource
) -> tuple[Step, ...]:
    """Return the hunt of a cell that contradicts itself: its first run against the reference's."""
    if found.verdict != Verdict.UNSTABLE or reference is None or reference[0].cell == found.cell:
        return ()
    return steps(reference[0], runs[0], compare(reference[0], runs[0], values), values)


def _own_verdict(cell: CellId, runs: Runs, values: TensorSource | None = None) -> CellResult | None:
    """Return the verdict that a cell has by itself; None if it is complete and stable."""
    statuses = {run.status for run in runs}
    failure = next((run.failure for run in runs if run.failure), None)
    if statuses == {"failed"}:
        found = _plain(cell, Verdict.FAILED, _failed(failure))
    elif len(runs) < 2:
        found = _plain(cell, Verdict.FAILED, "a run left no capture, so nothing is known of it")
    elif statuses == {"absent"}:
        absent = next((run.absent for run in runs if run.absent), None)
        found = _plain(cell, Verdict.ABSENT, absent or "this version does not know the model")
        found = found.model_copy(update={"absent": absent})
    else:
        names = _unstable_names(runs, values)
        if not names:
            return None
        headline = f"the cell does not agree with itself: {some(names)}"
        found = _plain(cell, Verdict.UNSTABLE, headline).model_copy(update={"unstable": names})
    told = notes(runs[0]) if runs and runs[0].status == "complete" else ()
    skips = runs[0].skips if runs else ()
    return found.model_copy(update={"failure": failure, "notes": told, "skips": skips})


def _unstable_names(runs: Runs, values: TensorSource | None) -> tuple[str, ...]:
    """Return what differs between the first run and the others, and what nothing ever wrote."""
    names = [name for other in runs[1:] for name in disagreements(runs[0], other, values)]
    unwritten = [f"{name} (never written)" for run in runs for name in never_written(run)]
    named = {name.removesuffix(" (never written)"): name for name in (*names, *unwritten)}
    return tuple(named.values())


def _compared(
    reference: Capture, candidate: Capture, values: TensorSource, reproduce: str
) -> CellResult:
    signals = compare(reference, candidate, values)
    verdict, headline = _verdict(signals)
    first = first_difference(reference, candidate, signals)
    splits = _splits(reference, candidate, signals)
    same = verdict is Verdict.IDENTICAL
    return CellResult(
        cell=candidate.cell,
        reference=reference.cell,
        verdict=verdict,
        judged=verdict,
        figure=figure(signals, splits),
        headline=first.what if first is not None else headline,
        signals=signals,
        changes=changes(reference, candidate),
        first=first,
        splits=splits,
        skips=candidate.skips,
        notes=notes(candidate, signals),
        steps=steps(reference, candidate, signals, values) if not same else (),
        reproduce=reproduce,
    )


def _verdict(signals: tuple[SignalComparison, ...]) -> tuple[Verdict, str]:
    """Return the verdict on two sound runs and a line that says it, in this order of rules.

    Which kind of difference it is, the precision ladder says later (samebits/thirdlook.py).
    """
    bearing = [signal for signal in signals if signal.signal not in EXPLANATORY]
    if any(signal.outcome == "differs" for signal in bearing):
        return Verdict.DIFFERS, "it differs"
    held = [s for s in bearing if s.outcome == "not compared" and not s.excused]
    if held:
        return Verdict.FAILED, f"{held[0].signal} could not be compared: {held[0].note}"
    same = [signal.signal for signal in bearing if signal.outcome == "identical"]
    if not ENOUGH & set(same):
        return Verdict.FAILED, "neither weights nor hidden_states nor logits could be compared"
    return Verdict.IDENTICAL, f"the same bytes: {', '.join(same)}"


def _splits(
    reference: Capture, candidate: Capture, signals: tuple[SignalComparison, ...]
) -> tuple[TokenSplit, ...]:
    """Return the token splits of the prompts whose greedy decoding was compared."""
    greedy = next((signal for signal in signals if signal.signal == "greedy"), None)
    names = {i.name for i in greedy.items if i.outcome == "differs"} if greedy else set()
    return tuple(s for s in token_splits(reference, candidate) if s.prompt in names)


def _plain(cell: CellId, verdict: Verdict, headline: str) -> CellResult:
    return CellResult(
        cell=cell, reference=None, verdict=verdict, judged=verdict, figure="", headline=headline
    )


def _failed(failure: Failure | None) -> str:
    if failure is None:
        return "it failed and did not say how"
    return f"failed in phase {failure.phase}: {failure.type}: {failure.in_short}".rstrip(": ")
