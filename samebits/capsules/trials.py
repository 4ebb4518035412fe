"""A case is tried by running its scripts inside both stacks' processes, heap filled by choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from pydantic import Field

from samebits.base.redaction import without_folders
from samebits.compare.metrics import measure
from samebits.jobs.cells import VALUES_LIMIT
from samebits.records.record import R, Record, read_record
from samebits.records.tensor import TensorRef, tensor_hash

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from samebits.compare.signals import TensorSource
    from samebits.records.capsule import Contrast, Question
    from samebits.records.capture import Capture
    from samebits.records.comparison import Metrics
    from samebits.stacks.process import StackProcess

    RunName = Literal["a", "b"]


class Trial(Record):
    """What a script computed in one stack, as probes/samebits_probe/jobs/capsule.py writes it."""

    format: Literal["samebits-capsule-trial"] = "samebits-capsule-trial"
    ref: TensorRef | None = None
    error: str = ""
    message: str = ""
    loading: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class Tensors(Record):
    """Which tensors a checkpoint has, as probes/samebits_probe/jobs/capsule.py lists them."""

    format: Literal["samebits-capsule-tensors"] = "samebits-capsule-tensors"
    header: dict[str, dict[str, object]] = Field(default_factory=dict)
    """That of a safetensors file with all of them."""
    pickled: bool = False
    refused: str = ""
    """Why they cannot be listed."""


class Answers(NamedTuple):
    """What both sides computed; of what is unstable thrice.

    Twice under one content of unwritten memory, then under the other: what parts the first two is
    no matter of memory.
    """

    reference: tuple[Trial, ...]
    candidate: tuple[Trial, ...]


async def tried(
    process: StackProcess, script: Path, run: RunName, work: Path, timeout: float, nth: int = 0
) -> Trial:
    """Return what one script computes in one stack; an error without a name if it left nothing.

    ``nth`` tells several trials of one script apart that run at once.
    """
    result = script.with_name(f"{script.name}.{run}{nth}.json")
    store = {"root": str(work), "limit": VALUES_LIMIT}
    job = {"script": str(script), "run": run, "store": store}
    found = await _answer(process, job, result, timeout, Trial)
    return found if isinstance(found, Trial) else Trial(message=found)


async def tensors_of(
    process: StackProcess, checkpoint: Path, result: Path, timeout: float
) -> Tensors:
    """Return the tensors of a folder, as one stack lists them."""
    job = {"checkpoint": str(checkpoint)}
    found = await _answer(process, job, result, timeout, Tensors)
    return found if isinstance(found, Tensors) else Tensors(refused=found)


async def _answer(
    process: StackProcess, job: dict[str, Any], result: Path, timeout: float, kind: type[R]
) -> R | str:
    """Return what a job wrote to ``result``, or why it wrote nothing."""
    result.unlink(missing_ok=True)
    log = str(result.with_suffix(".log"))
    common = {"kind": "capsule", "result": str(result), "log": log, "timeout": timeout}
    ended = await process.run(common | job)
    return read_record(result, kind) or ended.reason or "it left nothing"


def why_not(contrast: Contrast, answers: Answers, stacks: tuple[str, str], raised: str = "") -> str:
    """Return why the answers do not stand to each other as they should; '' if they do.

    ``stacks`` are the reference's and the candidate's, ``raised`` what the cell raised in the run.
    """
    old, new = stacks
    for stack, found in zip(stacks, answers, strict=True):
        if silent := [trial for trial in found if trial.ref is None and not trial.error]:
            return f"{stack} gave no answer: {silent[0].message}"
    failing = [(stack, t) for stack, found in zip(stacks, answers, strict=True) for t in found]
    if contrast == "fails":
        failing, (candidate, *_) = failing[:1], answers.candidate
        if not candidate.error:
            return f"{new} does not fail"
        if raised and not same_exception(raised, candidate):
            return f"{new} raises {_in_short(candidate)}, and not {raised}"
    for stack, trial in failing:
        if trial.error:
            also = " as well" if contrast == "fails" else ""
            return f"{stack} fails{also}: {_in_short(trial)}"
    if holds(contrast, answers):
        return ""
    if contrast == "differs":
        return f"{old} and {new} give the same bits"
    return _why_steady(answers, stacks)


def _why_steady(answers: Answers, stacks: tuple[str, str]) -> str:
    """Return why an instability is not one of unwritten memory in the candidate alone."""
    old, new = stacks
    *same_memory, other_memory = answers.candidate
    if len(_hashes(answers.reference)) > 1:
        return f"{old} does not give the same bits twice either"
    if len(_hashes(tuple(same_memory))) > 1:
        return f"{new} gives other bits also where unwritten memory holds the same, as with a clock"
    assert _hashes((other_memory,)) & _hashes(tuple(same_memory))
    return f"{new} gives the same bits whatever unwritten memory holds"


def _in_short(trial: Trial) -> str:
    """Return an exception's class and the first line of its message."""
    return without_folders(f"{trial.error}: {first_line(trial)}".removesuffix(": "))


def same_exception(raised: str, trial: Trial) -> bool:
    """Return True if a script raised what the run raised, by class and, where it can be told, words.

    ``raised`` is the run's exception as ``Class: first line of its message``.
    """
    name, _, message = raised.partition(": ")
    words = [said_everywhere(text) for text in (message, first_line(trial))]
    return name == trial.error and (not all(words) or words[0] == words[1])


def said_everywhere(message: str) -> str:
    """Return a message, or '' if it names a folder, a module or an address of this machine."""
    own = ("/", "\\", " at 0x", "transformers_modules")
    return "" if any(mark in message for mark in own) else message


def holds(contrast: Contrast, answers: Answers, base: Answers | None = None) -> bool:
    """Return True if the answers stand to each other as they should.

    ``base`` are those of the case as it was captured: a smaller one has to load as completely and
    to fail with the same words.
    """
    if base is not None and not _loads_as_well(answers, base):
        return False
    one, other = answers.reference[0], answers.candidate[0]
    if contrast == "fails":
        same = base is None or (other.error, first_line(other)) == (
            base.candidate[0].error,
            first_line(base.candidate[0]),
        )
        return one.ref is not None and bool(other.error) and same
    refs = [trial.ref for trial in (*answers.reference, *answers.candidate)]
    if any(ref is None for ref in refs):
        return False
    if contrast == "unstable":
        *alike, other_memory = answers.candidate
        return len(_hashes(answers.reference)) == len(_hashes(tuple(alike))) == 1 and not _hashes(
            (other_memory,)
        ) & _hashes(tuple(alike))
    return not _hashes(answers.reference) & _hashes(answers.candidate)


def first_line(trial: Trial) -> str:
    """Return the first line of an exception's message."""
    return trial.message.strip().partition("\n")[0]


def _hashes(trials: tuple[Trial, ...]) -> set[str]:
    return {trial.ref.hash for trial in trials if trial.ref is not None}


def _loads_as_well(answers: Answers, base: Answers) -> bool:
    """Return True if loading misses no key that it did not miss before: chance would fill it."""
    return all(
        set(now.loading.get(kind, ())) <= set(then.loading.get(kind, ()))
        for now, then in (
            (answers.reference[0], base.reference[0]),
            (answers.candidate[0], base.candidate[0]),
        )
        for kind in ("missing_keys", "mismatched_keys")
    )


def distance(question: Question, answers: Answers, values: TensorSource) -> Metrics | None:
    """Return how far both sides are apart; of greedy steps only up to where the tokens part."""
    arrays = _arrays(answers, values)
    if arrays is None:
        return None
    one, other = arrays
    if question.kind == "generate":
        n = _comparable(one, other)
        one, other = one[:n], other[:n]
    if one.shape != other.shape:
        return None
    return measure(one, other, logits=question.kind in {"forward", "generate"})


def steps_needed(answers: Answers, values: TensorSource) -> int | None:
    """Return how many greedy steps show the difference: up to the first that is about the largest.

    The first that differs may differ by rounding alone, and the bug come behind it.
    """
    arrays = _arrays(answers, values)
    if arrays is None:
        return None
    one, other = (array[: _comparable(*arrays)] for array in arrays)
    apart = [measure(a, b).max_abs for a, b in zip(one, other, strict=True)]
    return next(i for i, far in enumerate(apart, 1) if far >= max(apart) / 2)


def _comparable(one: NDArray[Any], other: NDArray[Any]) -> int:
    """Return the number of steps that were fed the same tokens."""
    n = min(len(one), len(other))
    chosen = (array[:n].astype(np.float64).argmax(-1) for array in (one, other))
    parted = np.flatnonzero(np.not_equal(*chosen))
    return int(parted[0]) + 1 if parted.size else n


def _arrays(answers: Answers, values: TensorSource) -> tuple[NDArray[Any], NDArray[Any]] | None:
    one, other = answers.reference[0].ref, answers.candidate[0].ref
    if one is None or other is None or not (values.has(one) and values.has(other)):
        return None
    return values.tensor(one), values.tensor(other)


def as_captured(
    question: Question, trial: Trial, capture: Capture, kept: TensorSource, tried: TensorSource
) -> bool:
    """Return True if a script computes what the capture says, wherever that can be told.

    ``kept`` has the values of the capture, ``tried`` those of the trial.
    """
    if trial.ref is None:
        return True
    captured = _captured(question, capture, kept)
    if captured is None:
        return True
    if question.kind == "generate":
        if not tried.has(trial.ref):
            return True
        steps = tried.tensor(trial.ref)
        n = min(len(captured), len(steps))
        return captured[:n].tobytes() == steps[:n].tobytes()
    dtype = trial.ref.dtype
    return tensor_hash(dtype, captured.shape, captured.tobytes()) == trial.ref.hash


def _captured(question: Question, capture: Capture, kept: TensorSource) -> NDArray[Any] | None:
    """Return what the capture holds of the script's result; None if its values were not kept."""
    ref = _captured_ref(question, capture)
    if ref is None or not kept.has(ref):
        return None
    values = kept.tensor(ref)
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
    tensors = signals.weights.tensors if signals.weights else {}
    return tensors[question.tensor].ref if question.tensor in tensors else None
