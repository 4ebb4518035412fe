"""Agreement of the two runs of one cell, padding included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.forwards import real_rows
from samebits.compare.metrics import measure
from samebits.compare.phases import explains, failure_behind, lack, signals_of
from samebits.compare.registry import units
from samebits.compare.unit import Observation, SignalUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.compare.pair import TensorSource
    from samebits.records.capture import Capture, Failure

PAD_ROWS = " (pad rows)"


def disagreements(a: Capture, b: Capture, values: TensorSource | None = None) -> tuple[str, ...]:
    """Return the names of all observations that differ between two runs of one cell.

    A name begins with its signal, such as ``buffers model.mask``. Padding counts too: a difference
    there comes from memory that was never written. With ``values`` such a difference is marked, as
    ``logits long (pad rows)``. An observation that a run lacks for a known reason (the run ended
    early, a phase raised, something was left out) is not a disagreement; a phase that raised in
    only one of the runs is.
    """
    if {a.status, b.status} - {"complete", "unfinished"} and a.status != b.status:
        return (f"status: {a.status} in run {a.run}, {b.status} in run {b.run}",)
    first, second = dict(_observations(a)), dict(_observations(b))
    early_runs = {run.run for run in (a, b) if lack(run) is not None}
    names = []
    for name in first | second:
        in_a, in_b = first.get(name), second.get(name)
        if in_a is None or in_b is None:
            observation, run = (in_a, b) if in_b is None else (in_b, a)
            assert observation is not None
            if run.run not in early_runs and not _lacks_with_reason(run, observation):
                names.append(name)
        elif in_a.identity != in_b.identity:
            names.append(name + (PAD_ROWS if _only_padding(in_a, in_b, values) else ""))
    sides = ((a, b), (b, a))
    raises = (
        name for run, twin in sides if not early_runs for name in _raised_in_one_run(run, twin)
    )
    crashes = (name for run, twin in sides for name in _crashed_in_one_run(run, twin))
    return (*names, *raises, *crashes)


def _lacks_with_reason(run: Capture, observation: Observation) -> bool:
    """Return True if the run has a reason for the missing observation other than the model.

    A check that does not apply to the model (a plain skip) does not apply in either run.
    """
    if failure_behind(run, observation.signal, observation.prompt) is not None:
        return True
    return any(
        skip.why != "plain"
        and (skip.what == f"prompt {observation.prompt}" or _skip_covers(skip.what, observation))
        for skip in run.skips
    )


def _skip_covers(what: str, observation: Observation) -> bool:
    prompt = what.replace(":", " ").partition(" ")[2].strip()
    return observation.signal in signals_of(what) and prompt in ("", observation.prompt)


def _raised_in_one_run(run: Capture, twin: Capture) -> Iterator[str]:
    """Yield the phases that raised in ``run`` and succeeded in the other run."""
    for failure in run.failures:
        signals = signals_of(failure.phase)
        if failure.may_be_the_machine or not signals or not _went_well(failure, twin):
            continue
        yield f"{_signal_name(failure.phase)} (raised {failure.type} only in run {run.run})"


def _crashed_in_one_run(run: Capture, twin: Capture) -> Iterator[str]:
    """Yield the phase in which ``run`` ended by its own action and the other run succeeded.

    A timeout or a lack of memory leaves no exception.
    """
    phase = run.unfinished.phase if run.unfinished is not None else ""
    crash = next((f for f in run.failures if f.phase == phase and not f.may_be_the_machine), None)
    if crash is None or explains(phase):
        return
    if twin.status == "complete" and _went_well(crash, twin):
        where = _signal_name(phase) if signals_of(phase) else f"status: phase {phase}"
        yield f"{where} (ended only in run {run.run}: {crash.in_short})"


def _signal_name(phase: str) -> str:
    """Return the signal and prompt of a phase, such as ``logits short``."""
    word, _, prompt = phase.removeprefix("trace ").partition(" ")
    signal = {"forward": "logits"}.get(word, word)
    return f"{signal} {prompt or 'all'}"


def _went_well(failure: Failure, twin: Capture) -> bool:
    """Return True if the phase neither raised nor was left out in ``twin``."""
    prompt = failure.phase.removeprefix("trace ").partition(" ")[2] or None
    if any(f.phase == failure.phase for f in twin.failures):
        return False
    observations = [Observation("", signal, prompt) for signal in signals_of(failure.phase)]
    return not any(_lacks_with_reason(twin, observation) for observation in observations)


def never_written(capture: Capture) -> tuple[str, ...]:
    """Return the names of the tensors that still hold the heap's fill byte after the load."""
    weights, buffers = capture.signals.weights, capture.signals.buffers or {}
    tensors = weights.tensors if weights is not None else {}
    from_weights = [
        f"weights {name}" for name, facts in tensors.items() if facts.origin == "unwritten"
    ]
    return (
        *from_weights,
        *(f"buffers {name}" for name, facts in buffers.items() if facts.unwritten),
    )


def _observations(capture: Capture) -> list[tuple[str, Observation]]:
    """Return everything that bears on a verdict, with its name.

    What the load left comes first, then prompt by prompt what the forward and the decoding gave.
    """
    prompts = {name: number for number, name in enumerate(capture.signals.forward or {})}

    def place(unit: SignalUnit, number: int, observation: Observation) -> tuple[int, int]:
        if observation.prompt is None:
            return 0, 0
        if "greedy" in unit.phases:  # rows of a batch, each with its logits and its tokens
            return 2, number
        return 1, prompts.get(observation.prompt, len(prompts))

    placed = [
        (place(unit, number, observation), (name, observation))
        for unit in units()
        for number, (name, observation) in enumerate(unit.observations(capture))
    ]
    return [named for _, named in sorted(placed, key=lambda entry: entry[0])]


def _only_padding(first: Observation, second: Observation, values: TensorSource | None) -> bool:
    """Return True if the real rows of both observations are known to be equal."""
    a, b = first.ref, second.ref
    if values is None or a is None or b is None or first.padded is None or second.padded is None:
        return False
    mask = real_rows(first.padded, a)
    if mask is None or first.padded.real_rows != second.padded.real_rows:
        return False
    if (a.shape, a.dtype) != (b.shape, b.dtype) or not (values.has(a) and values.has(b)):
        return False
    return not measure(values.tensor(a), values.tensor(b), rows=mask).n_differ
