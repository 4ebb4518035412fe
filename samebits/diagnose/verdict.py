"""What is the verdict on a cell, and where does the difference begin?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.amounts import figure, some
from samebits.compare.outcome import ran_forward
from samebits.compare.pair import ended, reason
from samebits.compare.phases import explains, key, lack, signals_of
from samebits.compare.signals import changes, compare
from samebits.diagnose.alone import alone, failed, in_every, is_same, said
from samebits.diagnose.exit_code import exit_code
from samebits.diagnose.expected import apply_expected
from samebits.diagnose.first import first_difference, token_splits
from samebits.diagnose.hunt import steps
from samebits.diagnose.notes import notes
from samebits.records.comparison import CellResult, SignalComparison, TokenSplit
from samebits.records.ids import EXPLANATORY, Signal, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from samebits.compare.signals import TensorSource
    from samebits.diagnose.alone import Alone
    from samebits.records.capture import Capture, Failure
    from samebits.records.finding import Step
    from samebits.records.ids import CellId

__all__ = [
    "Runs",
    "apply_expected",
    "choose_reference",
    "exit_code",
    "result",
    "same_everywhere",
]

Runs = tuple["Capture", ...]
"""What a cell's runs left: ``a`` and ``b``."""

ENOUGH: frozenset[Signal] = frozenset({"weights", "hidden_states", "logits"})
"""Without one of these compared, no cell is called identical."""


def choose_reference(cells: Mapping[CellId, Runs], stack: str) -> CellId | None:
    """Return the cell that the others are compared with, of one model in one variant.

    ``cells`` are in the order of the stacks, oldest first. Sound cells come before those of which a
    phase raised, and those with a forward before those without; one that did not finish is the last
    resort. Of equals it is the cell of ``stack``, the matrix's reference, or else the oldest.
    """
    ranked = {cell: _rank(alone(runs)) for cell, runs in cells.items()}
    fit = [cell for cell, rank in ranked.items() if rank is not None]
    return min(fit, key=lambda cell: (ranked[cell], cell.stack != stack), default=None)


def _rank(found: Alone) -> tuple[bool, bool, bool] | None:
    """Return how fit a cell is as a reference, the least the best; None if it is not."""
    if found.verdict is not None:
        return None
    if found.unfinished is not None and not found.has_weights:
        return None
    return found.unfinished is not None, not found.has_forward, bool(found.failures)


def same_everywhere(cells: Mapping[CellId, Runs]) -> tuple[Failure, ...]:
    """Return the exceptions that every cell of a row raised that loaded: they are the model's."""
    return in_every({cell: alone(runs) for cell, runs in cells.items()})


def result(
    cell: CellId,
    runs: Runs,
    reference: Runs | None,
    values: TensorSource,
    *,
    everywhere: tuple[Failure, ...] = (),
    reproduce: str = "",
) -> CellResult:
    """Return the verdict on a cell, with all that was found on the way to it.

    ``reference`` are the runs of the reference cell, which may be this one; None: there is none.
    ``everywhere`` are the exceptions that every release raises with this model.
    """
    own = alone(runs, values)
    against = alone(reference) if reference else None
    found = _judged(cell, own, against, values, everywhere)
    capture = own.capture
    about = notes(capture, found.signals) if capture is not None else ()
    update = {
        "notes": tuple(dict.fromkeys((*_notes(own, runs, found), *about))),
        "skips": capture.skips if capture is not None else (),
        "reproduce": reproduce,
    }
    return found.model_copy(update=update)


def _judged(
    cell: CellId,
    own: Alone,
    against: Alone | None,
    values: TensorSource,
    everywhere: tuple[Failure, ...],
) -> CellResult:
    if own.verdict is not None:
        return _by_itself(cell, own, own.verdict, against, values)
    assert own.capture is not None
    if against is None or against.capture is None or against.capture.cell == cell:
        is_reference = against is not None and against.capture is not None
        return _uncompared(cell, own, everywhere, is_reference=is_reference)
    if not own.loaded and own.unfinished is not None:
        return _uncompared(cell, own, everywhere, is_reference=False)
    return _compared(against, own, own.capture, values)


def _by_itself(
    cell: CellId, own: Alone, verdict: Verdict, against: Alone | None, values: TensorSource
) -> CellResult:
    """Return the verdict that a cell has without a comparison, with the hunt of an unstable one."""
    found = _plain(cell, verdict, own.headline)
    reference = against.capture if against is not None else None
    hunted: tuple[Step, ...] = ()
    if verdict is Verdict.UNSTABLE and reference is not None and reference.cell != cell:
        assert own.capture is not None
        hunted = steps(reference, own.capture, compare(reference, own.capture, values), values)
    update = {
        "reference": reference.cell if reference is not None else None,
        "failure": own.failure,
        "absent": own.absent,
        "unstable": own.unstable,
        "steps": hunted,
    }
    return found.model_copy(update=update)


def _uncompared(
    cell: CellId, own: Alone, everywhere: tuple[Failure, ...], *, is_reference: bool
) -> CellResult:
    """Return the verdict on the reference cell itself, or on a cell that has none."""
    rest = Verdict.REFERENCE if is_reference else None
    if own.failures:
        return _failed(_plain(cell, Verdict.FAILED, ""), own, own.failures, everywhere, rest)
    if own.unfinished is not None:
        return _not_finished(_plain(cell, Verdict.NOT_FINISHED, ""), own, rest)
    if is_reference:
        headline = "the other stacks are compared with this one"
        return _plain(cell, Verdict.REFERENCE, headline)
    return _plain(cell, Verdict.FAILED, "there is no complete and stable cell to compare with")


def _compared(against: Alone, own: Alone, candidate: Capture, values: TensorSource) -> CellResult:
    reference = against.capture
    assert reference is not None
    signals = compare(reference, candidate, values)
    verdict, headline = _verdict(signals)
    first = first_difference(reference, candidate, signals)
    splits = _splits(reference, candidate, signals)
    raised = tuple(f for f in own.failures if not any(is_same(f, g) for g in against.failures))
    shared = tuple(_bare(failure) for failure in own.failures if failure not in raised)
    found = CellResult(
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
        steps=() if verdict is Verdict.IDENTICAL else steps(reference, candidate, signals, values),
        shared_failures=shared,
    )
    if verdict is Verdict.IDENTICAL and _is_unfed(signals, own, against):
        found = _not_observed(found, reference, candidate)
    rest = None if _is_thin(signals) else found.judged
    if raised:
        return _failed(found, own, raised, (), rest)
    return _not_finished(found, own, rest) if own.unfinished is not None else found


def _verdict(signals: tuple[SignalComparison, ...]) -> tuple[Verdict, str]:
    """Return the verdict on what two runs observed and a line that says it, in this order of rules.

    Which kind of difference it is, the precision ladder says later (samebits/ladder/verdicts.py).
    """
    bearing = [signal for signal in signals if signal.signal not in EXPLANATORY]
    if any(signal.outcome == "differs" for signal in bearing):
        return Verdict.DIFFERS, "it differs"
    held = _held(signals)
    if held:
        return Verdict.FAILED, f"{held[0].signal} could not be compared: {held[0].note}"
    same = [signal.signal for signal in bearing if signal.outcome == "identical"]
    if not ENOUGH & set(same):
        return Verdict.FAILED, "neither weights nor hidden_states nor logits could be compared"
    return Verdict.IDENTICAL, f"the same bytes: {', '.join(same)}"


def _held(signals: tuple[SignalComparison, ...]) -> list[SignalComparison]:
    """Return the signals that could not be compared for no recorded reason."""
    bearing = (signal for signal in signals if signal.signal not in EXPLANATORY)
    return [s for s in bearing if s.outcome == "not compared" and not s.excused]


def _is_thin(signals: tuple[SignalComparison, ...]) -> bool:
    """Return True if too little was compared to say anything, each time for a recorded reason."""
    compared = {s.signal for s in signals if s.outcome == "identical"}
    differ = any(signal.outcome == "differs" for signal in signals)
    return not differ and not ENOUGH & compared and not _held(signals)


def _is_unfed(signals: tuple[SignalComparison, ...], own: Alone, against: Alone) -> bool:
    """Return True if no forward was compared, and neither an exception nor an early end is why."""
    if ran_forward(signals) or own.unfinished is not None or against.unfinished is not None:
        return False
    return not any("logits" in signals_of(f.phase) for f in (*own.failures, *against.failures))


def _not_observed(found: CellResult, reference: Capture, candidate: Capture) -> CellResult:
    """Return the result of a cell of which no forward was compared, with what was."""
    why = _unfed(candidate) or reason(candidate, "logits")
    if not why:
        why = f"{_unfed(reference) or reason(reference, 'logits')}, in the reference"
    headline = f"{_same_words(found.signals)}; no forward: {why}"
    update = {
        "verdict": Verdict.NOT_OBSERVED,
        "judged": Verdict.NOT_OBSERVED,
        "rest": found.judged,
        "headline": headline,
    }
    return found.model_copy(update=update)


def _unfed(capture: Capture) -> str:
    """Return why a run was fed nothing, '' if that is not why it lacks a forward."""
    fed = (skip for skip in capture.skips if skip.why == "inputs")
    return next((s.reason for s in fed if "logits" in signals_of(s.what)), "")


def _same_words(signals: tuple[SignalComparison, ...]) -> str:
    """Return what is the same, such as ``weights and buffers identical``."""
    names = [s.signal for s in signals if s.outcome == "identical" and s.signal not in EXPLANATORY]
    return f"{' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))} identical"


def _failed(
    found: CellResult,
    own: Alone,
    raised: tuple[Failure, ...],
    everywhere: tuple[Failure, ...],
    rest: Verdict | None,
) -> CellResult:
    """Return the result of a cell of which a phase raised, with the verdict on the other phases."""
    news = [f for f in raised if not any(is_same(f, g) for g in everywhere)]
    failure = news[0] if news else raised[0]
    headline = failed(failure) if news else f"{EVERYWHERE}: {said(failure)}"
    update: dict[str, object] = {
        "verdict": Verdict.FAILED,
        "judged": Verdict.FAILED,
        "rest": rest,
        "headline": headline,
        "failure": failure,
        "unfinished": own.unfinished,
    }
    if everywhere and rest is Verdict.REFERENCE:
        update["shared_failures"] = everywhere
    return found.model_copy(update=update)


EVERYWHERE = "fails in the same way in every release"


def _not_finished(found: CellResult, own: Alone, rest: Verdict | None) -> CellResult:
    """Return the result of a cell that did not finish, with the verdict on what was compared."""
    update = {
        "verdict": Verdict.NOT_FINISHED,
        "judged": Verdict.NOT_FINISHED,
        "rest": rest,
        "headline": f"not finished: {ended(own.unfinished)}",
        "unfinished": own.unfinished,
    }
    return found.model_copy(update=update)


def _notes(own: Alone, runs: Runs, found: CellResult) -> Iterator[str]:
    """Yield what is to be known of the runs themselves: what ended early, what else raised."""
    for run in runs:
        how = ended(run.unfinished)
        compared = own.capture is not None and run.run == own.capture.run
        if run.status == "unfinished" and lack(run) is None:
            yield f"run {run.run} did not finish, behind all that bears on the verdict: {how}"
        elif run.status == "unfinished" and not compared:
            yield f"run {run.run} did not finish ({how}); the other run is compared"
        for failure in run.failures:
            if explains(failure.phase):
                yield f"phase {failure.phase} raised, which makes no verdict: {said(failure)}"
    others: dict[tuple[str, ...], list[Failure]] = {}
    for failure in own.failures:
        if failure != found.failure and not any(is_same(failure, f) for f in found.shared_failures):
            others.setdefault(key(failure)[1:], []).append(failure)
    shown = key(found.failure)[1:] if found.failure is not None else ()
    for what, raised in others.items():
        phases = some(failure.phase for failure in raised)
        short = raised[0].in_short
        told = "the same" if what == shown else f"{raised[0].type}: {short}"
        yield f"raised in other phases, too: {phases}: {told}"


def _bare(failure: Failure) -> Failure:
    """Return an exception without its traceback, which the reference has."""
    return failure.model_copy(update={"traceback": "", "frames": (), "symbols": ()})


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
