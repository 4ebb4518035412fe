"""The signals that each phase of a run observes, and what a run that ended early lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from samebits.base.errors import OF_THE_MACHINE
from samebits.compare.registry import signals_of_word
from samebits.records.capture import Capture, Failure, Unfinished
from samebits.records.ids import Signal
from samebits.records.question import is_question
from samebits.records.subject import Subject

STORED: frozenset[Signal] = frozenset({"weights", "buffers", "inv_freq"})
"""Signals of tensors that exist before anything is computed."""

FORWARD: frozenset[Signal] = frozenset({"inputs", "hidden_states", "logits", "outputs"})
"""The signals that a forward pass produces."""

DECODED: frozenset[Signal] = frozenset({"decode", "greedy"})
"""The signals that `generate()` produces, step by step."""

_EXPLAINING = frozenset(
    {
        "tokenizer",
        "code",
        "attention",
        "kernels",
        "integrity",
        "evidence",
        "first",
        "probes",
        "settings",
        "modules",
        "omitted",
        "device",
    }
)
"""First words of the core's phases that explain a verdict and never decide it, as questions do."""

PROBE = "probe"
"""First word of the phase of a probe of the user's that counts; one that only informs is a part of
the phase ``probes``."""

_SHORTAGE_ERRORS = ("MemoryError", "OutOfMemoryError")
_TOKENIZER = "tokenizer"
"""Phase whose failures come from the load of the tokenizer: the model is observed without one, and users get the exception."""
_LOAD_PHASES = frozenset({"files", _TOKENIZER, "config", "load"})
"""Phases of the load; which of them raises an exception depends on the release."""


def signals_of(phase: str) -> frozenset[Signal]:
    """Return the signals with a verdict that a phase observes; none if the phase only explains."""
    return signals_of_word(word_and_prompt(phase)[0])


def explains(phase: str) -> bool:
    """Return True if no observation of a phase can decide a verdict."""
    word = word_and_prompt(phase)[0]
    return word in _EXPLAINING or is_question(word)


def decides(failure: Failure) -> bool:
    """Return True if an exception makes a cell fail: one of the load, or of a phase with a verdict."""
    return failure.phase == _TOKENIZER or not explains(failure.phase)


def row_subject(name: str, prompts: Iterable[str] = ()) -> Subject:
    """Return the subject of a decode's key in a capture: ``pair[1]`` is row 1 of ``pair``.

    A name that is one of ``prompts`` has no row.
    """
    match = re.fullmatch(r"(.*)\[(\d+)\]", name, re.DOTALL)
    if name in prompts or match is None:
        return Subject(prompt=name)
    return Subject(prompt=match[1], row=int(match[2]))


def failure_causing(capture: Capture, signal: Signal, prompt: str | None = None) -> Failure | None:
    """Return the exception that explains why ``capture`` lacks ``signal`` (for ``prompt``)."""
    for failure in capture.failures:
        phase_prompt = word_and_prompt(failure.phase)[1]
        if signal in signals_of(failure.phase) and (
            not phase_prompt or prompt is None or phase_prompt == prompt
        ):
            return failure
    return None


def is_shortage(failure: Failure) -> bool:
    """Return True if memory or a disk was short; a machine with more may succeed."""
    return (
        failure.phase == "memory"
        or failure.type.endswith(_SHORTAGE_ERRORS)
        or "allocate" in failure.message
        or bool(OF_THE_MACHINE.search(f"{failure.type}: {failure.message}"))
    )


def failures(capture: Capture) -> tuple[Failure, ...]:
    """Return the exceptions of phases after the load that make the cell fail."""
    return tuple(f for f in capture.failures if decides(f) and not is_shortage(f))


def incomplete_at(capture: Capture, twin: Capture | None = None) -> Unfinished | None:
    """Return where a run ended that lacks something a verdict needs; None if it lacks nothing.

    A run that ended in a phase after all of these lacks nothing. ``twin`` is the other run of the
    cell: an exception that may be caused by the machine counts as such if the twin did not raise
    it.
    """
    unfinished = capture.unfinished or Unfinished(phase="process", reason="the run ended early")
    if capture.status == "unfinished" and not _ended_after_all_signals(capture, unfinished.phase):
        return unfinished
    exceptions = (f for f in (capture.failure, *capture.failures) if f is not None)
    inconclusive = next((f for f in exceptions if decides(f) and _is_inconclusive(f, twin)), None)
    if inconclusive is None:
        return None
    return Unfinished(phase=inconclusive.phase, reason=inconclusive.in_words)


def _is_inconclusive(failure: Failure, twin: Capture | None) -> bool:
    if is_shortage(failure):
        return True
    return twin is not None and failure.may_be_the_machine and not _raised(twin, failure.phase)


def _raised(capture: Capture, phase: str) -> bool:
    """Return True if a phase raised; a failed load counts as raising in all phases."""
    return capture.failure is not None or any(f.phase == phase for f in capture.failures)


def _ended_after_all_signals(capture: Capture, phase: str) -> bool:
    signals = capture.signals
    observed = (
        signals.weights is not None,
        signals.buffers is not None,
        signals.forward is not None or _is_settled(capture, "logits"),
        signals.greedy is not None or _is_settled(capture, "greedy"),
    )
    missed = (skip.what for skip in capture.skips if skip.why == "unfinished")
    return explains(phase) and all(observed) and all(not _bears_on_verdict(what) for what in missed)


def _is_settled(capture: Capture, signal: Signal) -> bool:
    """Return True if a reason is recorded for a signal that is missing."""
    return failure_causing(capture, signal) is not None or any(
        signal in signals_of(skip.what) or _is_prompt(skip.what) for skip in capture.skips
    )


def _bears_on_verdict(what: str) -> bool:
    return bool(signals_of(what)) or _is_prompt(what) or word_and_prompt(what)[0] == PROBE


def _is_prompt(what: str) -> bool:
    """Return True if a skip left out a whole prompt."""
    return word_and_prompt(what)[0] == "prompt"


def best_first(runs: tuple[Capture, ...]) -> tuple[Capture, ...]:
    """Return the runs of a cell, best first: finished, else the one that observed more."""
    twins = (runs[1:2] + runs[:1]) if len(runs) == 2 else (None,) * len(runs)
    ranked = sorted(zip(runs, twins, strict=True), key=lambda pair: _rank(*pair))
    return tuple(run for run, _ in ranked)


def _rank(run: Capture, twin: Capture | None) -> tuple[int, int]:
    if run.extent == "short":  # it only says that the other run repeats itself
        return 3, 0
    if run.status in ("failed", "absent"):
        return 2, 0
    if incomplete_at(run, twin) is None:
        return 0, 0
    return 1, -sum(1 for _ in _observed_parts(run))


def _observed_parts(run: Capture) -> Iterator[object]:
    """Yield the observations of a run that bear on the verdict."""
    signals = run.signals
    yield from (s for s in (signals.weights, signals.buffers, signals.inv_freq) if s is not None)
    yield from (signals.forward or {}).values()
    yield from (signals.greedy or {}).values()


def same_exception(a: Failure, b: Failure) -> bool:
    """Return True if two exceptions are the same: kind of phase, type and message.

    Addresses, paths, line numbers and releases in the message are ignored.
    """
    return exception_key(a) == exception_key(b)


def exception_key(failure: Failure) -> tuple[str, str, str]:
    """Return a key that is equal for exceptions that are the same, wherever they were raised."""
    phase = word_and_prompt(failure.phase)[0]
    kind = "load" if phase in _LOAD_PHASES else phase
    return kind, failure.type.rpartition(".")[2], _generalised(failure.message)


def both_raise(before: Failure | None, after: Failure | None) -> str:
    """Return that two releases raise, so that nothing was observed in either; '' if one does not."""
    if before is None or after is None:
        return ""
    texts = [failure.in_words for failure in (before, after)]
    if exception_key(before) == exception_key(after):
        return f"not observed, as it raises the same in both releases: {texts[0]}"
    return (
        f"not observed, as it raises in both releases: {texts[0]} \N{RIGHTWARDS ARROW} {texts[1]}"
    )


_VARYING = (
    re.compile(r"(?<=\.py:)\d+"),
    re.compile(r"\b0x[0-9a-fA-F]+\b"),
    re.compile(r"(?<![\w:/])(?:…|~|\.{1,2}|[A-Za-z]:)?(?:[/\\][^\s/\\'\":,()]+)+"),
    re.compile(r"\bline \d+\b"),
    re.compile(r" \(at [^()]+\.py:[\d*]+ in [\w<>]+\)"),
    re.compile(r"(?<=\btransformers )v?\d+(?:\.\w+)+|(?<=\btorch )v?\d+(?:\.\w+)+"),
)
"""Parts of a message that differ between releases that raise the same exception."""


def _generalised(message: str) -> str:
    for pattern in _VARYING:
        message = pattern.sub("*", message)
    return " ".join(message.split())


def word_and_prompt(phase: str) -> tuple[str, str]:
    """Return the first word of a phase, or of what a skip left out, and the prompt after it.

    Probes and jobs name phases so: ``greedy long``, ``trace weights``, ``weights: origin``.
    """
    word, _, prompt = phase.removeprefix("trace ").partition(" ")
    return word.removesuffix(":"), prompt.strip()
