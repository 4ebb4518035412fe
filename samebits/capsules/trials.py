"""Trials of a case: its scripts run in both stacks' processes, with a chosen heap pattern."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.compare.metrics import measure
from samebits.compare.signals import TensorSource
from samebits.jobs.cells import VALUES_LIMIT
from samebits.records.capsule import Contrast, Question
from samebits.records.capture import Capture
from samebits.records.comparison import Metrics
from samebits.records.record import R, Record, read_record
from samebits.records.tensor import TensorRef, tensor_hash
from samebits.stacks.process import StackProcess
from samebits_wire.folders import without_folders
from samebits_wire.jobs import RunName, TensorsJob, TrialJob


class CapturedError(Record):
    """An exception in the words of a capture: the original one, where a release raises another in its place."""

    error: str = ""
    message: str = ""


class Trial(Record):
    """Result of a script in one stack, as probes/samebits_probe/jobs/capsule.py writes it."""

    format: Literal["samebits-capsule-trial"] = "samebits-capsule-trial"
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    ref: TensorRef | None = None
    sha256: str = ""
    """The hash that the script itself computes."""
    error: str = ""
    message: str = ""
    captured: CapturedError = CapturedError()
    loading: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class Tensors(Record):
    """The tensors of a checkpoint, as probes/samebits_probe/jobs/capsule.py lists them."""

    format: Literal["samebits-capsule-tensors"] = "samebits-capsule-tensors"
    header: dict[str, dict[str, object]] = Field(default_factory=dict)
    """Header of a safetensors file with all tensors."""
    pickled: bool = False
    refused: str = ""
    """Why they cannot be listed."""


class Answers(NamedTuple):
    """Results of both sides: one each, or three for an unstable cell.

    Two of the three have the same content of uninitialised memory, the third has another one. If the
    first two differ, uninitialised memory is not the cause.
    """

    reference: tuple[Trial, ...]
    candidate: tuple[Trial, ...]


async def run_trial(
    process: StackProcess,
    script: Path,
    run: RunName,
    work: Path,
    timeout: float,
    nth: int = 0,
    threads: int = 1,
    *,
    trusts_code: bool,
) -> Trial:
    """Return the result of one script in one stack; only a message if it left no result.

    ``threads`` are those that the script sets. ``nth`` distinguishes trials of the same script that run at the same time.
    """
    result = script.with_name(f"{script.name}.{run}{nth}.json")
    job: TrialJob = {
        "kind": "capsule",
        "script": str(script),
        "trust_remote_code": trusts_code,
        "run": run,
        "threads": threads,
        "store": {"root": str(work), "limit": VALUES_LIMIT},
        "result": str(result),
        "log": str(result.with_suffix(".log")),
        "timeout": timeout,
    }
    record = await _job_result(process, job, result, Trial)
    return record if isinstance(record, Trial) else Trial(message=record)


async def list_tensors(
    process: StackProcess, checkpoint: Path, result: Path, timeout: float
) -> Tensors:
    """Return the tensors of a checkpoint folder, listed by one stack."""
    job: TensorsJob = {
        "kind": "capsule",
        "checkpoint": str(checkpoint),
        "result": str(result),
        "log": str(result.with_suffix(".log")),
        "timeout": timeout,
    }
    record = await _job_result(process, job, result, Tensors)
    return record if isinstance(record, Tensors) else Tensors(refused=record)


async def _job_result(
    process: StackProcess, job: TrialJob | TensorsJob, result: Path, kind: type[R]
) -> R | str:
    """Return the record that a job wrote to ``result``, or why it wrote none."""
    result.unlink(missing_ok=True)
    ended = await process.run(job)
    return read_record(result, kind) or ended.reason or "it wrote no result"


def why_not(contrast: Contrast, answers: Answers, stacks: tuple[str, str], raised: str = "") -> str:
    """Return why the answers do not show the contrast; '' if they do.

    ``stacks`` are the reference's and the candidate's. ``raised`` is the exception in the run.
    """
    old, new = stacks
    for stack, results in zip(stacks, answers, strict=True):
        if silent := [trial for trial in results if trial.ref is None and not trial.error]:
            return f"{stack} returned nothing: {silent[0].message}"
    failing = [(stack, t) for stack, results in zip(stacks, answers, strict=True) for t in results]
    if contrast == "fails":
        failing, (candidate, *_) = failing[:1], answers.candidate
        if not candidate.error:
            return f"{new} does not fail"
        if raised and not same_exception(raised, candidate):
            return f"{new} raises {_exception_words(candidate)} instead of {raised}"
    for stack, trial in failing:
        if trial.error:
            also = " as well" if contrast == "fails" else ""
            return f"{stack} fails{also}: {_exception_words(trial)}"
    if holds(contrast, answers):
        return ""
    if contrast == "differs":
        return f"{old} and {new} give the same bits"
    return _why_not_unstable(answers, stacks)


def _why_not_unstable(answers: Answers, stacks: tuple[str, str]) -> str:
    """Return why the instability is not caused by uninitialised memory in the candidate only."""
    old, new = stacks
    *same_memory, other_memory = answers.candidate
    if len(_hashes(answers.reference)) > 1:
        return f"{old} also gives different bits in two runs"
    if len(_hashes(tuple(same_memory))) > 1:
        return (
            f"{new} gives different bits even if uninitialised memory holds the same, "
            "as with random numbers"
        )
    assert _hashes((other_memory,)) & _hashes(tuple(same_memory))
    return f"{new} gives the same bits for any content of uninitialised memory"


def _exception_words(trial: Trial) -> str:
    """Return an exception's class and the first line of its message."""
    return without_folders(f"{trial.error}: {first_line(trial)}".removesuffix(": "))


def same_exception(raised: str, trial: Trial) -> bool:
    """Return True if a script raised the run's exception: same class and, if portable, message.

    ``raised`` is the run's exception as ``Class: first line of its message``.
    """
    name, _, message = raised.partition(": ")
    exception = trial.captured if trial.captured.error else trial
    words = [portable_message(text) for text in (message, first_line(exception))]
    return name == exception.error and (not all(words) or words[0] == words[1])


def portable_message(message: str) -> str:
    """Return a message; '' if it contains a folder, a module or an address of this machine."""
    local_marks = ("/", "\\", " at 0x", "transformers_modules")
    return "" if any(mark in message for mark in local_marks) else message


def holds(contrast: Contrast, answers: Answers, base: Answers | None = None) -> bool:
    """Return True if the answers show the contrast.

    ``base`` are the answers of the case as it was captured. A smaller case has to load as
    completely and to fail with the same message.
    """
    if base is not None and not _loads_as_well(answers, base):
        return False
    reference, candidate = answers.reference[0], answers.candidate[0]
    if contrast == "fails":
        has_same_error = base is None or (candidate.error, first_line(candidate)) == (
            base.candidate[0].error,
            first_line(base.candidate[0]),
        )
        return reference.ref is not None and bool(candidate.error) and has_same_error
    refs = [trial.ref for trial in (*answers.reference, *answers.candidate)]
    if any(ref is None for ref in refs):
        return False
    if contrast == "unstable":
        *same_memory, other_memory = answers.candidate
        hashes = _hashes(tuple(same_memory))
        is_stable = len(_hashes(answers.reference)) == len(hashes) == 1
        return is_stable and not _hashes((other_memory,)) & hashes
    return not _hashes(answers.reference) & _hashes(answers.candidate)


def first_line(trial: Trial | CapturedError) -> str:
    """Return the first line of an exception's message."""
    return trial.message.strip().partition("\n")[0]


def _hashes(trials: tuple[Trial, ...]) -> set[str]:
    return {trial.ref.hash for trial in trials if trial.ref is not None}


def _loads_as_well(answers: Answers, base: Answers) -> bool:
    """Return True if loading misses no new key, which would be filled at random."""
    return all(
        set(trial.loading.get(kind, ())) <= set(base_trial.loading.get(kind, ()))
        for trial, base_trial in (
            (answers.reference[0], base.reference[0]),
            (answers.candidate[0], base.candidate[0]),
        )
        for kind in ("missing_keys", "mismatched_keys")
    )


def distance(question: Question, answers: Answers, values: TensorSource) -> Metrics | None:
    """Return the distance of both sides; of greedy steps only those with the same tokens."""
    arrays = _arrays(answers, values)
    if arrays is None:
        return None
    reference, candidate = arrays
    if question.kind == "generate":
        n = _n_comparable_steps(reference, candidate)
        reference, candidate = reference[:n], candidate[:n]
    if reference.shape != candidate.shape:
        return None
    return measure(reference, candidate, logits=question.kind in {"forward", "generate"})


def steps_needed(answers: Answers, values: TensorSource) -> int | None:
    """Return how many greedy steps show the difference: up to the first that is about the largest.

    The first step that differs may differ only by rounding, before the bug shows.
    """
    arrays = _arrays(answers, values)
    if arrays is None:
        return None
    reference, candidate = (array[: _n_comparable_steps(*arrays)] for array in arrays)
    distances = [measure(a, b).max_abs for a, b in zip(reference, candidate, strict=True)]
    return next(
        i for i, step_distance in enumerate(distances, 1) if step_distance >= max(distances) / 2
    )


def _n_comparable_steps(reference: NDArray[Any], candidate: NDArray[Any]) -> int:
    """Return the number of steps with the same input tokens on both sides."""
    n = min(len(reference), len(candidate))
    tokens = (array[:n].astype(np.float64).argmax(-1) for array in (reference, candidate))
    differing = np.flatnonzero(np.not_equal(*tokens))
    return int(differing[0]) + 1 if differing.size else n


def _arrays(answers: Answers, values: TensorSource) -> tuple[NDArray[Any], NDArray[Any]] | None:
    reference, candidate = answers.reference[0].ref, answers.candidate[0].ref
    if (
        reference is None
        or candidate is None
        or not (values.has(reference) and values.has(candidate))
    ):
        return None
    return values.tensor(reference), values.tensor(candidate)


def matches_capture(
    question: Question,
    trial: Trial,
    capture: Capture,
    captured_values: TensorSource,
    trial_values: TensorSource,
) -> bool:
    """Return True if a script computes the bits of the capture, or if they cannot be compared.

    ``captured_values`` has the values of the capture, ``trial_values`` those of the trial.
    """
    if trial.ref is None:
        return True
    captured = _captured_array(question, capture, captured_values)
    if captured is None:
        return True
    if question.kind == "generate":
        if not trial_values.has(trial.ref):
            return True
        steps = trial_values.tensor(trial.ref)
        n = min(len(captured), len(steps))
        return captured[:n].tobytes() == steps[:n].tobytes()
    dtype = trial.ref.dtype
    return tensor_hash(dtype, captured.shape, captured.tobytes()) == trial.ref.hash


def _captured_array(
    question: Question, capture: Capture, captured_values: TensorSource
) -> NDArray[Any] | None:
    """Return the capture's values of the script's result; None if they are not in the store."""
    ref = _captured_ref(question, capture)
    if ref is None or not captured_values.has(ref):
        return None
    values = captured_values.tensor(ref)
    if question.real is None:
        return values
    rows = [values[i, start:stop] for i, (start, stop) in enumerate(question.real)]
    return np.concatenate(rows)


def _captured_ref(question: Question, capture: Capture) -> TensorRef | None:
    signals = capture.signals
    if question.kind == "forward":
        facts = (signals.forward or {}).get(question.prompt)
        return facts.logits if facts else None
    if question.kind == "generate":
        greedy = signals.greedy or {}
        name = (
            question.prompt if question.prompt in greedy else f"{question.prompt}[{question.row}]"
        )
        return greedy[name].logits if name in greedy else None
    if question.kind == "buffer" and question.tensor in (signals.buffers or {}):
        return (signals.buffers or {})[question.tensor].ref
    weight = signals.tensors.get(question.tensor)
    return weight.ref if weight is not None else None
