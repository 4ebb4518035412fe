"""Which signals does a phase of a run observe, and what does a run lack for want of time or memory?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.records.capture import Unfinished

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.records.capture import Capture, Failure
    from samebits.records.ids import Signal

FORWARD: frozenset[Signal] = frozenset({"inputs", "hidden_states", "logits"})
"""The signals that a forward carries."""

_GREEDY: frozenset[Signal] = frozenset({"decode", "greedy"})
_SIGNALS: dict[str, frozenset[Signal]] = {
    "weights": frozenset({"weights"}),
    "buffers": frozenset({"buffers", "inv_freq"}),
    "inv_freq": frozenset({"inv_freq"}),
    "inputs": FORWARD,
    "forward": FORWARD | _GREEDY,
    "hidden_states": frozenset({"hidden_states"}),
    "logits": frozenset({"logits"}),
    "decode": _GREEDY,
    "greedy": _GREEDY,
}
"""First word of a phase -> the signals that are missing where it raised or did not finish.

What a forward refuses is not decoded either.
"""

_EXPLAINING = frozenset(
    {
        "tokenizer",
        "code",
        "attention",
        "kernels",
        "integrity",
        "usage",
        "invariants",
        "relations",
        "evidence",
        "first",
    }
)
"""First words of the phases that explain a verdict and never make one."""

_SHORTAGE = ("MemoryError", "OutOfMemoryError")
_LOAD = frozenset({"files", "tokenizer", "config", "load"})
"""Phases of the load; which of them an exception is raised in depends on the release."""


def signals_of(phase: str) -> frozenset[Signal]:
    """Return the verdict-bearing signals that a phase observes; none of one that only explains."""
    return _SIGNALS.get(_words(phase)[0], frozenset())


def explains(phase: str) -> bool:
    """Return True if nothing that a phase observes can make a verdict."""
    return _words(phase)[0] in _EXPLAINING


def prompt_of(row: str, prompts: Iterable[str] = ()) -> str:
    """Return the prompt of a row of a batch: ``pair[1]`` is row 1 of ``pair``."""
    return row if row in prompts else re.sub(r"\[\d+\]$", "", row)


def failure_behind(capture: Capture, signal: Signal, prompt: str | None = None) -> Failure | None:
    """Return the exception for which ``capture`` lacks ``signal`` (for ``prompt``)."""
    for failure in capture.failures:
        of = _words(failure.phase)[1]
        if signal in signals_of(failure.phase) and (not of or prompt is None or of == prompt):
            return failure
    return None


def is_shortage(failure: Failure) -> bool:
    """Return True if memory was short: another machine may have had enough."""
    return (
        failure.phase == "memory"
        or failure.type.endswith(_SHORTAGE)
        or "allocate" in failure.message
    )


def failures(capture: Capture) -> tuple[Failure, ...]:
    """Return the exceptions of phases behind the load that make the cell fail."""
    return tuple(f for f in capture.failures if not explains(f.phase) and not is_shortage(f))


def lack(capture: Capture, twin: Capture | None = None) -> Unfinished | None:
    """Return where a run ended that lacks something that bears on the verdict; None if none does.

    A run that ended in a phase behind all that bears on the verdict lacks nothing. ``twin`` is the
    other run of the cell: an exception that may be the machine's is one if the twin did not raise it.
    """
    unfinished = capture.unfinished or Unfinished(phase="process", reason="the run ended early")
    if capture.status == "unfinished" and not _ended_behind_all(capture, unfinished.phase):
        return unfinished
    raised = (f for f in (capture.failure, *capture.failures) if f is not None)
    short = next((f for f in raised if not explains(f.phase) and _is_no_answer(f, twin)), None)
    if short is None:
        return None
    return Unfinished(phase=short.phase, reason=f"{short.type}: {short.in_short}")


def _is_no_answer(failure: Failure, twin: Capture | None) -> bool:
    if is_shortage(failure):
        return True
    return twin is not None and failure.may_be_the_machine and not _raised(twin, failure.phase)


def _raised(capture: Capture, phase: str) -> bool:
    """Return True if a phase raised; one that does not load raises in all of them."""
    return capture.failure is not None or any(f.phase == phase for f in capture.failures)


def _ended_behind_all(capture: Capture, phase: str) -> bool:
    signals = capture.signals
    observed = (
        signals.weights is not None,
        signals.buffers is not None,
        signals.forward is not None or _is_settled(capture, "logits"),
        signals.greedy is not None or _is_settled(capture, "greedy"),
    )
    missed = (skip.what for skip in capture.skips if skip.why == "unfinished")
    return explains(phase) and all(observed) and all(not _bears(what) for what in missed)


def _is_settled(capture: Capture, signal: Signal) -> bool:
    """Return True if a signal is missing for another reason than that the run ended."""
    told = (skip.what for skip in capture.skips if skip.why != "unfinished")
    return failure_behind(capture, signal) is not None or any(
        signal in signals_of(what) or what.startswith("prompt ") for what in told
    )


def _bears(what: str) -> bool:
    return bool(signals_of(what)) or what.startswith("prompt ")


def best_first(runs: tuple[Capture, ...]) -> tuple[Capture, ...]:
    """Return a cell's runs, the one that is compared first: finished, else with more observed."""
    twins = (runs[1:2] + runs[:1]) if len(runs) == 2 else (None,) * len(runs)
    ranked = sorted(zip(runs, twins, strict=True), key=lambda pair: _rank(*pair))
    return tuple(run for run, _ in ranked)


def _rank(run: Capture, twin: Capture | None) -> tuple[int, int]:
    if run.status in ("failed", "absent"):
        return 2, 0
    if lack(run, twin) is None:
        return 0, 0
    return 1, -sum(1 for _ in _parts(run))


def _parts(run: Capture) -> Iterator[object]:
    """Yield what a run observed that bears on the verdict."""
    signals = run.signals
    yield from (s for s in (signals.weights, signals.buffers, signals.inv_freq) if s is not None)
    yield from (signals.forward or {}).values()
    yield from (signals.greedy or {}).values()


def same(one: Failure, other: Failure) -> bool:
    """Return True if two exceptions are one: the same kind of phase, type and message.

    Addresses, paths, line numbers and releases in the message count for nothing.
    """
    return key(one) == key(other)


def key(failure: Failure) -> tuple[str, str, str]:
    """Return what is equal for exceptions that are one, wherever they were raised."""
    phase = _words(failure.phase)[0]
    kind = "load" if phase in _LOAD else phase
    return kind, failure.type.rpartition(".")[2], _general(failure.message)


_VARYING = (
    re.compile(r"(?<=\.py:)\d+"),
    re.compile(r"\b0x[0-9a-fA-F]+\b"),
    re.compile(r"(?<![\w:/])(?:…|~|\.{1,2}|[A-Za-z]:)?(?:[/\\][^\s/\\'\":,()]+)+"),
    re.compile(r"\bline \d+\b"),
    re.compile(r"(?<=\btransformers )v?\d+(?:\.\w+)+|(?<=\btorch )v?\d+(?:\.\w+)+"),
)
"""What two releases that raise the same exception spell in their own way."""


def _general(message: str) -> str:
    for varying in _VARYING:
        message = varying.sub("*", message)
    return " ".join(message.split())


def _words(phase: str) -> tuple[str, str]:
    """Return the first word of a phase, or of what a skip speaks of, and the prompt behind it."""
    word, _, of = phase.removeprefix("trace ").replace(":", " ").partition(" ")
    return word, of.strip()
