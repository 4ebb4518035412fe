"""What does a cell show by itself, before it is compared with another?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.compare.amounts import some
from samebits.compare.phases import best_first, failures, lack, same
from samebits.compare.signals import disagreements, never_written
from samebits.records.ids import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samebits.compare.signals import TensorSource
    from samebits.records.capture import Capture, Failure, Unfinished
    from samebits.records.ids import CellId

NO_CAPTURE = "a run left no capture, so nothing is known of it"


class Alone(NamedTuple):
    """A cell's runs, judged without any other cell."""

    capture: Capture | None
    """The run that is compared; None if there is none."""
    verdict: Verdict | None = None
    """failed, absent or unstable; None: it is to be compared."""
    headline: str = ""
    failure: Failure | None = None
    """What kept the model from being loaded."""
    failures: tuple[Failure, ...] = ()
    """Exceptions of phases behind the load."""
    unfinished: Unfinished | None = None
    """Where a run ended that lacks something that bears on the verdict."""
    unstable: tuple[str, ...] = ()
    absent: str | None = None

    @property
    def has_weights(self) -> bool:
        """True if the cell can be compared at all."""
        return self.capture is not None and self.capture.signals.weights is not None

    @property
    def loaded(self) -> bool:
        """True if a model was there to be observed."""
        signals = self.capture.signals if self.capture is not None else None
        return signals is not None and (signals.load is not None or signals.weights is not None)

    @property
    def has_forward(self) -> bool:
        """True if a forward was observed."""
        return self.capture is not None and bool(self.capture.signals.forward)


def alone(runs: tuple[Capture, ...], values: TensorSource | None = None) -> Alone:
    """Return what a cell's runs show by themselves."""
    best = best_first(runs)
    if not best:
        return Alone(None, Verdict.FAILED, NO_CAPTURE)
    statuses = {run.status for run in runs}
    if statuses == {"failed"}:
        return _not_loaded(best)
    if len(runs) < 2:
        return Alone(best[0], Verdict.FAILED, NO_CAPTURE, best[0].failure)
    if statuses == {"absent"}:
        absent = next((run.absent for run in runs if run.absent), None)
        headline = absent or "this version does not know the model"
        return Alone(best[0], Verdict.ABSENT, headline, absent=absent)
    return _ran(runs, best, values)


def _not_loaded(runs: tuple[Capture, ...]) -> Alone:
    """Return a cell that loaded in neither run: failed, unless only memory was short."""
    unfinished = [lack(run) for run in runs]
    real = next((run for run, short in zip(runs, unfinished, strict=True) if short is None), None)
    if real is None:
        return Alone(runs[0], unfinished=unfinished[0])
    return Alone(real, Verdict.FAILED, failed(real.failure), real.failure)


def _ran(
    runs: tuple[Capture, ...], best: tuple[Capture, ...], values: TensorSource | None
) -> Alone:
    """Return a cell of whose runs at least one got beyond the load, or knows the model."""
    first, second = best
    failure = next((run.failure for run in runs if run.failure), None)
    unfinished = lack(first, second) or lack(second, first)
    loaded = {first.status, second.status} <= {"complete", "unfinished"}
    if unfinished is not None and _refused(first, second):
        return Alone(second, Verdict.FAILED, failed(failure), failure)
    agree = unfinished is not None and not loaded
    names = _unstable(runs, values, written_alone=agree)
    if names:
        raised = failure or next((f for run in runs for f in failures(run)), None)
        headline = f"the cell does not agree with itself: {some(names)}"
        return Alone(first, Verdict.UNSTABLE, headline, raised, unstable=names)
    return Alone(first, failures=_raised(first, second), unfinished=unfinished)


def _refused(first: Capture, second: Capture) -> bool:
    """Return True if the second run failed to load and the first ended before it had loaded."""
    loaded = Alone(first).loaded
    return second.status == "failed" and lack(second, first) is None and not loaded


def _unstable(
    runs: tuple[Capture, ...], values: TensorSource | None, *, written_alone: bool
) -> tuple[str, ...]:
    """Return what differs between the runs, and what nothing ever wrote; the latter only if asked."""
    names = () if written_alone else disagreements(runs[0], runs[1], values)
    unwritten = [f"{name} (never written)" for run in runs for name in never_written(run)]
    named = {name.removesuffix(" (never written)"): name for name in (*names, *unwritten)}
    return tuple(named.values())


def _raised(first: Capture, second: Capture) -> tuple[Failure, ...]:
    """Return the exceptions of the phases of both runs; of one that did not finish, none."""
    raised = failures(first)
    if second.status != "complete" or lack(second, first) is not None:
        return raised
    phases = {failure.phase for failure in raised}
    return (*raised, *(f for f in failures(second) if f.phase not in phases))


def failed(failure: Failure | None) -> str:
    """Return the headline of a cell that failed."""
    if failure is None:
        return "it failed and did not say how"
    return f"failed in phase {said(failure)}"


def said(failure: Failure) -> str:
    """Return an exception in one line: ``greedy short: ValueError: …``."""
    return f"{failure.phase}: {failure.type}: {failure.in_short}".rstrip(": ")


def in_every(cells: Mapping[CellId, Alone]) -> tuple[Failure, ...]:
    """Return the exceptions of phases that every cell of a row raised that loaded, if several did."""
    loaded = [cell for cell in cells.values() if cell.loaded]
    if len(loaded) < 2:
        return ()
    first, *others = loaded
    return tuple(
        failure
        for failure in first.failures
        if all(any(is_same(failure, f) for f in cell.failures) for cell in others)
    )


def is_same(one: Failure, other: Failure) -> bool:
    """Return True if one exception was raised in one phase of two cells."""
    return one.phase == other.phase and same(one, other)


def same_failure(captures: Iterable[Capture]) -> Failure | None:
    """Return the exception that all of these runs raised; None if one raised none or another.

    Runs of several stacks, or of several variants: what a model does everywhere is its own.
    """
    raised = [(run.failure,) if run.failure is not None else failures(run) for run in captures]
    if not raised:
        return None
    return next(
        (f for f in raised[0] if all(any(same(f, g) for g in others) for others in raised[1:])),
        None,
    )
