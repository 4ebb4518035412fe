"""What the two runs of a cell show without a comparison with another cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from samebits.compare.describe import some
from samebits.compare.phases import best_first, failures, incomplete_at, same_exception
from samebits.compare.signals import TensorSource, disagreements, never_written
from samebits.compare.stability import Disagreement, raised_alone
from samebits.records.capture import Capture, Failure, Unfinished
from samebits.records.ids import CellId, Verdict

NO_CAPTURE = "a run left no capture, so nothing is known about it"


class CellState(NamedTuple):
    """The runs of a cell, judged without any other cell."""

    capture: Capture | None
    """The run that is compared; None if there is none."""
    verdict: Verdict | None = None
    """failed, absent or unstable; None: the cell is to be compared."""
    headline: str = ""
    failure: Failure | None = None
    """The exception that kept the model from loading."""
    failures: tuple[Failure, ...] = ()
    """Exceptions of phases after the load, without those that are an instability."""
    unfinished: Unfinished | None = None
    """Where a run ended that lacks something a verdict needs."""
    unstable: tuple[Disagreement, ...] = ()
    absent: str | None = None

    @property
    def has_weights(self) -> bool:
        """True if the cell can be compared at all."""
        return self.capture is not None and self.capture.signals.weights is not None

    @property
    def loaded(self) -> bool:
        """True if a model was loaded."""
        signals = self.capture.signals if self.capture is not None else None
        return signals is not None and (signals.load is not None or signals.weights is not None)

    @property
    def has_forward(self) -> bool:
        """True if a forward was observed."""
        return self.capture is not None and bool(self.capture.signals.forward)


def alone(runs: tuple[Capture, ...], values: TensorSource | None = None) -> CellState:
    """Return what the runs of a cell show without a comparison."""
    best = best_first(runs)
    if not best:
        return CellState(None, Verdict.FAILED, NO_CAPTURE)
    statuses = {run.status for run in runs}
    if statuses == {"failed"}:
        return _load_failed(best)
    if len(runs) < 2:
        return CellState(best[0], Verdict.FAILED, NO_CAPTURE, best[0].failure)
    if statuses == {"absent"}:
        absent = next((run.absent for run in runs if run.absent), None)
        headline = absent or "this release does not have the model"
        return CellState(best[0], Verdict.ABSENT, headline, absent=absent)
    return _loaded_state(runs, best, values)


def _load_failed(runs: tuple[Capture, ...]) -> CellState:
    """Return a cell that loaded in neither run: failed, unless only memory was short."""
    unfinished = [incomplete_at(run) for run in runs]
    failed_run = next(
        (run for run, missing in zip(runs, unfinished, strict=True) if missing is None), None
    )
    if failed_run is None:
        return CellState(runs[0], unfinished=unfinished[0])
    return CellState(
        failed_run, Verdict.FAILED, failure_headline(failed_run.failure), failed_run.failure
    )


def _loaded_state(
    runs: tuple[Capture, ...], best: tuple[Capture, ...], values: TensorSource | None
) -> CellState:
    """Return a cell that loaded, or is known as a model, in at least one run."""
    first, second = best
    failure = next((run.failure for run in runs if run.failure), None)
    unfinished = incomplete_at(first, second) or incomplete_at(second, first)
    loaded = {first.status, second.status} <= {"complete", "unfinished"}
    if unfinished is not None and _second_failed_to_load(first, second):
        return CellState(second, Verdict.FAILED, failure_headline(failure), failure)
    unwritten_only = unfinished is not None and not loaded
    unstable = _disagreements(runs, values, unwritten_only=unwritten_only)
    if unstable and not _is_replaced(unstable, runs):
        first_failure = failure or next((f for run in runs for f in failures(run)), None)
        headline = f"the cell does not reproduce itself: {some(map(str, unstable))}"
        in_one_run = {*raised_alone(first, second), *raised_alone(second, first)}
        raised = tuple(f for f in _phase_failures(first, second) if f not in in_one_run)
        return CellState(
            first, Verdict.UNSTABLE, headline, first_failure, raised, unstable=unstable
        )
    return CellState(first, failures=_phase_failures(first, second), unfinished=unfinished)


def _second_failed_to_load(first: Capture, second: Capture) -> bool:
    """Return True if the second run failed to load, and the first ended before it loaded."""
    loaded = CellState(first).loaded
    return second.status == "failed" and incomplete_at(second, first) is None and not loaded


def _is_replaced(unstable: tuple[Disagreement, ...], runs: tuple[Capture, ...]) -> bool:
    """Return True if nothing disagrees but buffers that both runs wrote in their forwards before they read them.

    Had a forward read one first, its outputs would differ: each run fills memory with a byte of its own.
    """
    replaced = set.intersection(
        *({n for n, f in (run.signals.buffers or {}).items() if f.replaced} for run in runs)
    )
    return all(d.signal in ("buffers", "inv_freq") and d.what in replaced for d in unstable)


def _disagreements(
    runs: tuple[Capture, ...], values: TensorSource | None, *, unwritten_only: bool
) -> tuple[Disagreement, ...]:
    """Return the tensors that differ between the runs, and those that were never written.

    With ``unwritten_only`` the runs are not compared.
    """
    differing = () if unwritten_only else disagreements(runs[0], runs[1], values)
    unwritten = [disagreement for run in runs for disagreement in never_written(run)]
    by_subject = {d._replace(unwritten=False): d for d in (*differing, *unwritten)}
    return tuple(by_subject.values())


def _phase_failures(first: Capture, second: Capture) -> tuple[Failure, ...]:
    """Return the exceptions of the phases of both runs; a run that did not finish adds none."""
    exceptions = failures(first)
    if second.status != "complete" or incomplete_at(second, first) is not None:
        return exceptions
    phases = {failure.phase for failure in exceptions}
    return (*exceptions, *(f for f in failures(second) if f.phase not in phases))


def failure_headline(failure: Failure | None) -> str:
    """Return the headline of a cell that failed."""
    if failure is None:
        return "it failed without an error message"
    return f"failed in phase {failure_line(failure)}"


def failure_line(failure: Failure) -> str:
    """Return an exception in one line: ``greedy short: ValueError: …``."""
    return f"{failure.phase}: {failure.in_words}".rstrip(": ")


def failures_everywhere(cells: Mapping[CellId, CellState]) -> tuple[Failure, ...]:
    """Return the exceptions of phases that every loaded cell of a row raised.

    A row with only one loaded cell has none.
    """
    loaded = [cell for cell in cells.values() if cell.loaded]
    if len(loaded) < 2:
        return ()
    first, *others = loaded
    return tuple(
        failure
        for failure in first.failures
        if all(any(is_same(failure, f) for f in cell.failures) for cell in others)
    )


def is_same(a: Failure, b: Failure) -> bool:
    """Return True if two cells raised the same exception in the same phase."""
    return a.phase == b.phase and same_exception(a, b)
