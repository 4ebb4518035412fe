"""The verdict on a cell, and where its difference begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from samebits.compare.describe import figure, some
from samebits.compare.outcome import ran_forward
from samebits.compare.pair import ended, reason
from samebits.compare.phases import (
    exception_key,
    explains,
    failures,
    incomplete_at,
    signals_of,
)
from samebits.compare.probes import new_failures
from samebits.compare.signals import TensorSource, changes, compare, informing
from samebits.diagnose.alone import (
    CellState,
    alone,
    failure_headline,
    failure_line,
    failures_everywhere,
    is_same,
)
from samebits.diagnose.exit_code import exit_code
from samebits.diagnose.expected import apply_expected
from samebits.diagnose.first import first_difference, token_splits
from samebits.diagnose.hunt import steps
from samebits.diagnose.notes import notes, raised_notes
from samebits.records.capture import Capture, Failure, Unfinished
from samebits.records.comparison import CellResult, SignalComparison, TokenSplit
from samebits.records.finding import Step
from samebits.records.ids import CellId, Signal, Verdict

__all__ = [
    "Runs",
    "apply_expected",
    "choose_reference",
    "exit_code",
    "result",
    "same_everywhere",
]

Runs = tuple["Capture", ...]
"""The captures of a cell: runs ``a`` and ``b``."""

NO_MODEL = (
    "the folder holds no model: its tokenizer and its processors are compared, see the findings"
)
ENOUGH: frozenset[Signal] = frozenset({"weights", "hidden_states", "logits"})
"""A cell is called identical only if at least one of these was compared."""


def choose_reference(cells: Mapping[CellId, Runs], stack: str) -> CellId | None:
    """Return the cell that the others of its row are compared with.

    ``cells`` are those of one model in one variant, in the order of the stacks, oldest first. Sound
    cells come before those with a phase that raised, and those with a forward before those without;
    an unfinished cell is the last choice. Among equals it is the cell of ``stack``, the matrix's
    reference, or else the oldest.
    """
    ranked = {cell: _rank(alone(runs)) for cell, runs in cells.items()}
    usable = [cell for cell, rank in ranked.items() if rank is not None]
    return min(usable, key=lambda cell: (ranked[cell], cell.stack != stack), default=None)


def _rank(state: CellState) -> tuple[bool, bool, bool] | None:
    """Return how suitable a cell is as a reference, lowest first; None if it is unsuitable."""
    if state.verdict is not None:
        return None
    if state.unfinished is not None and not state.has_weights:
        return None
    return state.unfinished is not None, not state.has_forward, bool(state.failures)


def same_everywhere(cells: Mapping[CellId, Runs]) -> tuple[Failure, ...]:
    """Return the exceptions that every loaded cell of a row raised: the model's own."""
    return failures_everywhere({cell: alone(runs) for cell, runs in cells.items()})


def result(
    cell: CellId,
    runs: Runs,
    reference: Runs | None,
    values: TensorSource,
    *,
    everywhere: tuple[Failure, ...] = (),
    reproduce: str = "",
) -> CellResult:
    """Return the verdict on a cell, with everything that was found on the way.

    ``reference`` are the runs of the reference cell, which may be this cell; None if there is none.
    ``everywhere`` are the exceptions that this model raises in every release.
    """
    state = alone(runs, values)
    reference_state = alone(reference) if reference else None
    judged = _cell_result(cell, state, reference_state, values, everywhere)
    capture = state.capture
    capture_notes = notes(capture, judged.signals, judged.informing) if capture else ()
    if capture is not None and reference_state is not None and reference_state.capture is not None:
        capture_notes = (*capture_notes, *raised_notes(reference_state.capture, capture))
    update = {
        "notes": tuple(dict.fromkeys((*_run_notes(state, runs, judged), *capture_notes))),
        "skips": capture.skips if capture is not None else (),
        "reproduce": reproduce,
    }
    return judged.model_copy(update=update)


def _cell_result(
    cell: CellId,
    state: CellState,
    reference_state: CellState | None,
    values: TensorSource,
    everywhere: tuple[Failure, ...],
) -> CellResult:
    if state.verdict is not None:
        return _without_comparison(cell, state, state.verdict, reference_state, values)
    assert state.capture is not None
    if (
        reference_state is None
        or reference_state.capture is None
        or reference_state.capture.cell == cell
    ):
        is_reference = reference_state is not None and reference_state.capture is not None
        return _reference_result(cell, state, everywhere, is_reference=is_reference)
    if not state.loaded and state.unfinished is not None:
        return _reference_result(cell, state, everywhere, is_reference=False)
    return _compared_result(reference_state, state, state.capture, values)


def _without_comparison(
    cell: CellId,
    state: CellState,
    verdict: Verdict,
    reference_state: CellState | None,
    values: TensorSource,
) -> CellResult:
    """Return the result of a cell with a verdict of its own, with the hunt if it is unstable."""
    cell_result = _plain_result(cell, verdict, state.headline)
    raised = state.failures if reference_state is None else _own_failures(state, reference_state)
    if verdict is Verdict.FAILED and state.failure is not None:
        raised = (state.failure,)
    reference = reference_state.capture if reference_state is not None else None
    hunt: tuple[Step, ...] = ()
    if verdict is Verdict.UNSTABLE and reference is not None and reference.cell != cell:
        assert state.capture is not None
        hunt = steps(reference, state.capture, compare(reference, state.capture, values), values)
    update = {
        "reference": reference.cell if reference is not None else None,
        "failure": state.failure,
        "failures": tuple(map(_without_traceback, raised)),
        "absent": state.absent,
        "unstable": tuple(map(str, state.unstable)),
        "unstable_signals": tuple(dict.fromkeys(d.signal for d in state.unstable if d.signal)),
        "steps": hunt,
    }
    return cell_result.model_copy(update=update)


def _reference_result(
    cell: CellId, state: CellState, everywhere: tuple[Failure, ...], *, is_reference: bool
) -> CellResult:
    """Return the result of the reference cell, or of a cell without a reference."""
    rest = Verdict.REFERENCE if is_reference else None
    if state.failures:
        return _failed_result(
            _plain_result(cell, Verdict.FAILED, ""), state, state.failures, everywhere, rest
        )
    if state.unfinished is not None:
        plain = _plain_result(cell, Verdict.NOT_FINISHED, "")
        return _unfinished_result(plain, state.unfinished, rest)
    if is_reference:
        headline = "the other environments are compared with this one"
        return _plain_result(cell, Verdict.REFERENCE, headline)
    return _plain_result(
        cell,
        Verdict.FAILED,
        "no other cell is complete and stable, so there is nothing to compare with",
    )


def _compared_result(
    reference_state: CellState, state: CellState, candidate: Capture, values: TensorSource
) -> CellResult:
    reference = reference_state.capture
    assert reference is not None
    signals = compare(reference, candidate, values)
    has_model = state.loaded or reference_state.loaded
    verdict, headline = _signals_verdict(signals) if has_model else (Verdict.NOT_OBSERVED, NO_MODEL)
    first = first_difference(reference, candidate, signals)
    splits = _compared_splits(reference, candidate, signals)
    informs = informing(reference, candidate, values)
    own_failures = (
        *_own_failures(state, reference_state),
        *new_failures(reference, candidate),
    )
    shared = tuple(
        _without_traceback(failure) for failure in state.failures if failure not in own_failures
    )
    cell_result = CellResult(
        cell=candidate.cell,
        reference=reference.cell,
        verdict=verdict,
        judged=verdict,
        figure=figure(signals, splits),
        headline=first.what if first is not None else headline,
        signals=signals,
        informing=informs,
        changes=changes(reference, candidate),
        first=first,
        splits=splits,
        steps=()
        if verdict is Verdict.IDENTICAL or not has_model
        else steps(reference, candidate, signals, values),
        shared_failures=shared,
    )
    # a cell whose own exception keeps it from a forward has failed, and its rest is identical
    is_unobserved = not own_failures and _has_no_forward(signals, state, reference_state)
    if verdict is Verdict.IDENTICAL and is_unobserved:
        cell_result = _unobserved_result(cell_result, reference, candidate)
    rest = None if _too_little_compared(signals) else cell_result.judged
    if own_failures:
        return _failed_result(cell_result, state, own_failures, (), rest)
    if state.unfinished is not None:
        return _unfinished_result(cell_result, state.unfinished, rest)
    if reference_state.unfinished is not None:
        return _unfinished_result(
            cell_result, reference_state.unfinished, rest, ", in the reference"
        )
    return cell_result


def _own_failures(state: CellState, reference_state: CellState) -> tuple[Failure, ...]:
    """Return the exceptions of a cell that its reference does not raise."""
    of_reference = reference_state.failures
    return tuple(f for f in state.failures if not any(is_same(f, g) for g in of_reference))


def _signals_verdict(signals: tuple[SignalComparison, ...]) -> tuple[Verdict, str]:
    """Return the verdict on two runs and its headline; the first rule that applies decides.

    The precision ladder decides later which kind of difference it is (samebits/ladder/verdicts.py).
    """
    if any(signal.outcome == "differs" for signal in signals):
        return Verdict.UNDECIDED, "it differs"
    blocked = _blocked_signals(signals)
    if blocked:
        return Verdict.FAILED, f"{blocked[0].signal} could not be compared: {blocked[0].note}"
    identical = [signal.signal for signal in signals if signal.outcome == "identical"]
    if not ENOUGH & set(identical):
        return Verdict.FAILED, "neither weights nor hidden_states nor logits could be compared"
    return Verdict.IDENTICAL, f"the same bytes: {', '.join(identical)}"


def _blocked_signals(signals: tuple[SignalComparison, ...]) -> list[SignalComparison]:
    """Return the signals that could not be compared, without a recorded reason."""
    return [s for s in signals if s.outcome == "not compared" and not s.excused]


def _too_little_compared(signals: tuple[SignalComparison, ...]) -> bool:
    """Return True if too little was compared for a verdict, each time for a known reason."""
    compared = {s.signal for s in signals if s.outcome == "identical"}
    differ = any(signal.outcome == "differs" for signal in signals)
    return not differ and not ENOUGH & compared and not _blocked_signals(signals)


def _has_no_forward(
    signals: tuple[SignalComparison, ...], state: CellState, reference_state: CellState
) -> bool:
    """Return True if no forward was compared, and no run ended early.

    If each side raises the same exception, equal weights do not show that the releases compute the
    same.
    """
    ended_early = state.unfinished is not None or reference_state.unfinished is not None
    return not ended_early and not ran_forward(signals)


def _unobserved_result(
    cell_result: CellResult, reference: Capture, candidate: Capture
) -> CellResult:
    """Return the result of a cell without a compared forward, with the rest that was compared."""
    missing_reason = (
        _missing_inputs_reason(candidate)
        or _raised_reason(candidate)
        or reason(candidate, "logits")
    )
    if not missing_reason:
        missing_reason = (
            f"{_missing_inputs_reason(reference) or reason(reference, 'logits')}, in the reference"
        )
    headline = f"{_identical_text(cell_result.signals)}; no forward: {missing_reason}"
    update = {
        "verdict": Verdict.NOT_OBSERVED,
        "judged": Verdict.NOT_OBSERVED,
        "rest": cell_result.judged,
        "headline": headline,
    }
    return cell_result.model_copy(update=update)


def _raised_reason(capture: Capture) -> str:
    """Return the exception of a run's first forward in words; '' if none raised."""
    raised = (f for f in failures(capture) if "logits" in signals_of(f.phase))
    failure = next(raised, None)
    return failure_line(failure) if failure is not None else ""


def _missing_inputs_reason(capture: Capture) -> str:
    """Return why a run had no inputs, '' if it lacks a forward for another reason."""
    skips = (skip for skip in capture.skips if skip.why == "inputs")
    return next((s.reason for s in skips if "logits" in signals_of(s.what)), "")


def _identical_text(signals: tuple[SignalComparison, ...]) -> str:
    """Return which signals are the same, such as ``weights and buffers identical``."""
    names = [signal.signal for signal in signals if signal.outcome == "identical"]
    return f"{' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))} identical"


def _failed_result(
    cell_result: CellResult,
    state: CellState,
    failures: tuple[Failure, ...],
    everywhere: tuple[Failure, ...],
    rest: Verdict | None,
) -> CellResult:
    """Return the result of a cell with a phase that raised, with the verdict on the others."""
    new_failures = [f for f in failures if not any(is_same(f, g) for g in everywhere)]
    failure = new_failures[0] if new_failures else failures[0]
    headline = (
        failure_headline(failure) if new_failures else f"{EVERYWHERE}: {failure_line(failure)}"
    )
    update: dict[str, object] = {
        "verdict": Verdict.FAILED,
        "judged": Verdict.FAILED,
        "rest": rest,
        "headline": headline,
        "failure": failure,
        "failures": tuple(map(_without_traceback, failures)),
        "unfinished": state.unfinished,
    }
    if everywhere and rest is Verdict.REFERENCE:
        update["shared_failures"] = everywhere
    return cell_result.model_copy(update=update)


EVERYWHERE = "fails in the same way in every release"


def _unfinished_result(
    cell_result: CellResult, unfinished: Unfinished, rest: Verdict | None, where: str = ""
) -> CellResult:
    """Return the result of a cell that did not finish, with the verdict on the compared part.

    ``where`` names the side that ended, if it is not the cell.
    """
    open_reason = f"{ended(unfinished)}{where}"
    update = {
        "verdict": Verdict.NOT_FINISHED,
        "judged": Verdict.NOT_FINISHED,
        "rest": rest,
        "headline": f"not finished: {open_reason}",
        "open_reason": open_reason,
        "unfinished": unfinished,
    }
    return cell_result.model_copy(update=update)


def _run_notes(state: CellState, runs: Runs, cell_result: CellResult) -> Iterator[str]:
    """Yield notes on the runs themselves: an early end, other exceptions."""
    for run in runs:
        ending = ended(run.unfinished)
        compared = state.capture is not None and run.run == state.capture.run
        if run.status == "unfinished" and incomplete_at(run) is None:
            yield f"run {run.run} did not finish, but only after everything that the verdict needs: {ending}"
        elif run.status == "unfinished" and not compared:
            yield f"run {run.run} did not finish ({ending}); the other run is compared"
        for failure in run.failures:
            if explains(failure.phase):
                line = failure_line(failure)
                yield f"phase {failure.phase} raised, which does not affect the verdict: {line}"
    others: dict[tuple[str, ...], list[Failure]] = {}
    for failure in state.failures:
        if failure != cell_result.failure and not any(
            is_same(failure, f) for f in cell_result.shared_failures
        ):
            others.setdefault(exception_key(failure)[1:], []).append(failure)
    headline_key = exception_key(cell_result.failure)[1:] if cell_result.failure is not None else ()
    for what, alike in others.items():
        phases = some(failure.phase for failure in alike)
        short = alike[0].in_short
        text = "the same" if what == headline_key else f"{alike[0].type}: {short}"
        yield f"also raised in other phases: {phases}: {text}"


def _without_traceback(failure: Failure) -> Failure:
    """Return an exception without its traceback, of which one is enough."""
    return failure.model_copy(update={"traceback": "", "frames": (), "symbols": ()})


def _compared_splits(
    reference: Capture, candidate: Capture, signals: tuple[SignalComparison, ...]
) -> tuple[TokenSplit, ...]:
    """Return the token splits of the prompts whose greedy decoding was compared."""
    greedy = next((signal for signal in signals if signal.signal == "greedy"), None)
    names = (
        {i.subject.prompt_row for i in greedy.items if i.outcome == "differs"} if greedy else set()
    )
    return tuple(s for s in token_splits(reference, candidate) if s.prompt in names)


def _plain_result(cell: CellId, verdict: Verdict, headline: str) -> CellResult:
    return CellResult(
        cell=cell, reference=None, verdict=verdict, judged=verdict, figure="", headline=headline
    )
