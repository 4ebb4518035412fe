"""Agreement of the two runs of one cell, padding included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from samebits.compare.forwards import real_rows
from samebits.compare.metrics import measure
from samebits.compare.pair import TensorSource
from samebits.compare.phases import (
    exception_key,
    explains,
    failure_causing,
    failures,
    incomplete_at,
    signals_of,
    word_and_prompt,
)
from samebits.compare.registry import signal_names, units
from samebits.compare.state import NAME as STATE
from samebits.compare.unit import Observation, SignalUnit
from samebits.records.capture import OF_THE_MODEL, Capture, Failure, GreedyFacts
from samebits.records.ids import Signal
from samebits.records.subject import Subject

START = 2
"""Steps of a decoding that a short run observes: the second is the first that reads the cache."""


class Disagreement(NamedTuple):
    """Something that is not the same in two runs of one cell, or that nothing ever wrote.

    It prints as ``buffers model.mask``, ``logits long (pad rows)`` or ``status: …``.
    """

    signal: Signal | None
    """None: it concerns no single signal."""
    what: str
    remark: str = ""
    unwritten: bool = False
    """True if it still holds the heap's fill byte after the load."""

    def __str__(self) -> str:
        """Return the text that reports show."""
        remark = "never written" if self.unwritten else self.remark
        text = self.what if self.signal is None else f"{self.signal} {self.what}"
        return f"{text} ({remark})" if remark else text


def disagreements(
    a: Capture, b: Capture, values: TensorSource | None = None
) -> tuple[Disagreement, ...]:
    """Return all observations that differ between two runs of one cell.

    Padding counts too: a difference there comes from memory that was never written. With ``values``
    such a difference is marked. An observation that a run lacks for a known reason (the run ended
    early, a phase raised, something was left out) is not a disagreement; a phase that raised in
    only one of the runs is. With a short run only the start of each decoding is compared.
    """
    if "short" in {a.extent, b.extent}:
        a, b = _shortened(a), _shortened(b)
    if {a.status, b.status} - {"complete", "unfinished"} and a.status != b.status:
        what = f"status: {a.status} in run {a.run}, {b.status} in run {b.run}"
        return (Disagreement(None, what),)
    first, second = _observations(a), _observations(b)
    early_runs = {run.run for run in (a, b) if incomplete_at(run) is not None}
    differing = []
    for signal, subject in first | second:
        in_a, in_b = first.get((signal, subject)), second.get((signal, subject))
        if in_a is None or in_b is None:
            observation, run = (in_a, b) if in_b is None else (in_b, a)
            assert observation is not None
            if run.run not in early_runs and not _lacks_with_reason(run, observation):
                differing.append(Disagreement(signal, str(subject)))
        elif in_a.identity != in_b.identity:
            remark = "pad rows" if _only_padding(in_a, in_b, values) else ""
            differing.append(Disagreement(signal, str(subject), remark))
    sides = ((a, b), (b, a))
    raises = (d for run, twin in sides if not early_runs for d in _raised_in_one_run(run, twin))
    crashes = (d for run, twin in sides for d in _crashed_in_one_run(run, twin))
    return (*differing, *raises, *crashes)


def agrees(short: Capture, first: Capture) -> bool:
    """Return True if a short run shows nothing but that it repeats the first run.

    Whatever else it shows, and whatever it lacks, only a full run can be judged by.
    """
    exceptions = [f for run in (first, short) for f in (run.failure, *run.failures) if f]
    if short.status == "unfinished" or any(f.may_be_the_machine for f in exceptions):
        return False
    if any(incomplete_at(*runs) for runs in ((first, short), (short, first))):
        return False
    if never_written(first) or never_written(short) or _raised(first) != _raised(short):
        return False
    observed = (_observations(_shortened(run)) for run in (first, short))
    first_observed, short_observed = observed
    if first_observed.keys() != short_observed.keys():
        return False
    return not disagreements(first, short)


def _raised(run: Capture) -> set[tuple[str, tuple[str, str, str]]]:
    """Return the phases of a run that raised and bear on the verdict, with their exceptions."""
    exceptions = (*filter(None, (run.failure,)), *failures(run))
    return {(failure.phase, exception_key(failure)) for failure in exceptions}


def _shortened(run: Capture) -> Capture:
    """Return a run as a short one observes it: with the start of each decoding."""
    if run.extent == "short" or run.signals.greedy is None:
        return run
    started = {row: _started(facts) for row, facts in run.signals.greedy.items()}
    signals = run.signals.model_copy(update={"greedy": started})
    return run.model_copy(update={"signals": signals})


def _started(facts: GreedyFacts) -> GreedyFacts:
    update = {"ids": facts.ids[:START], "top2": facts.top2[:START], "logits": facts.start}
    return facts.model_copy(update=update)


def _lacks_with_reason(run: Capture, observation: Observation) -> bool:
    """Return True if the run has a reason for the missing observation other than the model.

    A check that does not apply to the model does not apply in either run.
    """
    prompt = observation.subject.prompt
    if failure_causing(run, observation.signal, prompt or None) is not None:
        return True
    return any(
        skip.why not in OF_THE_MODEL
        and (skip.what == f"prompt {prompt}" or _skip_covers(skip.what, observation))
        for skip in run.skips
    )


def _skip_covers(what: str, observation: Observation) -> bool:
    _, prompt = word_and_prompt(what)
    return observation.signal in signals_of(what) and prompt in ("", observation.subject.prompt)


def _raised_in_one_run(run: Capture, twin: Capture) -> Iterator[Disagreement]:
    """Yield the phases that raised in ``run`` and succeeded in the other run."""
    for failure in raised_alone(run, twin):
        yield _of_phase(failure.phase, f"raised {failure.type} only in run {run.run}")


def raised_alone(run: Capture, twin: Capture) -> list[Failure]:
    """Return the exceptions of phases that raised in ``run`` and succeeded in the other run."""
    return [
        failure
        for failure in run.failures
        if not failure.may_be_the_machine
        and signals_of(failure.phase)
        and _went_well(failure, twin)
    ]


def _crashed_in_one_run(run: Capture, twin: Capture) -> Iterator[Disagreement]:
    """Yield the phase in which ``run`` ended by its own action and the other run succeeded.

    A timeout or a lack of memory leaves no exception.
    """
    phase = run.unfinished.phase if run.unfinished is not None else ""
    crash = next((f for f in run.failures if f.phase == phase and not f.may_be_the_machine), None)
    if crash is None or explains(phase):
        return
    if twin.status == "complete" and _went_well(crash, twin):
        yield _of_phase(phase, f"ended only in run {run.run}: {crash.in_short}")


def _of_phase(phase: str, remark: str) -> Disagreement:
    """Return a disagreement about a phase: its signal and prompt, such as ``logits short``."""
    word, prompt = word_and_prompt(phase)
    name = "logits" if word == "forward" else word
    if name not in signal_names() or not signals_of(phase):
        return Disagreement(None, f"status: phase {phase}", remark)
    return Disagreement(name, prompt or "all", remark)


def _went_well(failure: Failure, twin: Capture) -> bool:
    """Return True if the phase neither raised nor was left out in ``twin``."""
    word, prompt = word_and_prompt(failure.phase)
    if word == STATE or any(f.phase == failure.phase for f in twin.failures):
        return False  # only run a asks what was left behind
    subject = Subject(prompt=prompt)
    observations = [Observation("", signal, subject) for signal in signals_of(failure.phase)]
    return not any(_lacks_with_reason(twin, observation) for observation in observations)


def never_written(capture: Capture) -> tuple[Disagreement, ...]:
    """Return the tensors that still hold the heap's fill byte after the load."""
    tensors, buffers = capture.signals.tensors, capture.signals.buffers or {}
    unwritten_weights = [n for n, facts in tensors.items() if facts.origin == "unwritten"]
    unwritten_buffers = [n for n, facts in buffers.items() if facts.unwritten]
    return (
        *(Disagreement("weights", name, unwritten=True) for name in unwritten_weights),
        *(Disagreement("buffers", name, unwritten=True) for name in unwritten_buffers),
    )


def _observations(capture: Capture) -> dict[tuple[Signal, Subject], Observation]:
    """Return everything that bears on a verdict, by signal and subject.

    What the load left comes first, then prompt by prompt what the forward and the decoding gave.
    """
    prompts = {name: number for number, name in enumerate(capture.signals.forward or {})}

    def place(unit: SignalUnit, number: int, observation: Observation) -> tuple[int, int]:
        prompt = observation.subject.prompt
        if not prompt:
            return 0, 0
        if "greedy" in unit.phases:  # rows of a batch, each with its logits and its tokens
            return 2, number
        return 1, prompts.get(prompt, len(prompts))

    placed = [
        (place(unit, number, observation), observation)
        for unit in units()
        for number, observation in enumerate(unit.observations(capture))
    ]
    placed.sort(key=lambda entry: entry[0])
    return {(observation.signal, observation.subject): observation for _, observation in placed}


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
