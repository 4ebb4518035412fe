"""A pair of runs to compare, where their values come from, and why a signal is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from samebits.compare.phases import (
    FORWARD,
    STORED,
    failure_causing,
    same_exception,
    signals_of,
    word_and_prompt,
)
from samebits.records.capture import Capture, ForwardFacts, Unfinished
from samebits.records.comparison import ItemComparison
from samebits.records.ids import Signal
from samebits.records.subject import Reason, Subject
from samebits.records.tensor import TensorRef


class TensorSource(Protocol):
    """Source of tensor values: samebits.storage.store.Store, or a dict in a test."""

    def has(self, ref: TensorRef) -> bool:
        """Return True if :meth:`tensor` can return the values."""

    def tensor(self, ref: TensorRef) -> NDArray[Any]:
        """Return the values, in the dtype and shape of the ref."""


@dataclass(frozen=True)
class Pair:
    """A complete run of the reference cell and one of the candidate cell."""

    reference: Capture
    candidate: Capture
    values: TensorSource

    @property
    def prompts(self) -> tuple[str, ...]:
        """Every prompt that either side ran a forward over, in the order of the reference."""
        return union(self.reference.signals.forward or {}, self.candidate.signals.forward or {})

    def forwards(self, prompt: str) -> tuple[ForwardFacts | None, ForwardFacts | None]:
        """Return both sides' forward over ``prompt``, None for a side without one."""
        reference = (self.reference.signals.forward or {}).get(prompt)
        return reference, (self.candidate.signals.forward or {}).get(prompt)

    def missing(
        self, signal: Signal, prompt: str | None, *, reference: bool, candidate: bool
    ) -> tuple[str, bool]:
        """Return why the sides that are True lack it, and whether each gives a reason."""
        if reference and candidate and (note := self._raised_on_both(signal, prompt)):
            return note, True
        sides = []
        if reference:
            sides.append(("in the reference", reason(self.reference, signal, prompt)))
        if candidate:
            sides.append(("in the candidate", reason(self.candidate, signal, prompt)))
        reasons = {text for _, text in sides}
        if len(sides) == 2 and len(reasons) == 1 and all(reasons):
            return f"not observed on either side: {sides[0][1]}", True
        notes = [
            f"not observed {where}: {text or 'no reason was recorded'}" for where, text in sides
        ]
        return "; ".join(notes), all(reasons)

    def _raised_on_both(self, signal: Signal, prompt: str | None) -> str:
        """Return a note if both sides raised the same exception for a signal, else ''."""
        sides = (self.reference, self.candidate)
        expected, failure = (failure_causing(side, signal, prompt) for side in sides)
        if expected is None or failure is None or not same_exception(expected, failure):
            return ""
        return f"raises the same exception in the reference: {failure.in_words}"


def reason(capture: Capture, signal: Signal, prompt: str | None = None) -> str:
    """Return why ``capture`` lacks ``signal`` (for ``prompt``), '' if no reason was recorded.

    A skip names a signal (``greedy``), all signals of a forward (``forward``), or a prompt
    (``prompt long``). A skip of a signal or a forward may name the prompt too (``logits long``).
    Inputs that no forward gets are not decoded either. Without a skip, the reason is an exception
    of the phase, or the early end of the run.
    """
    for skip in capture.skips:
        word, skipped_prompt = word_and_prompt(skip.what)
        matches = _covers_signal(word, signal) or (
            skip.why == "inputs" and signal in signals_of(word)
        )
        if matches and _covers_prompt(skipped_prompt, signal, prompt):
            return skip.reason.strip()
    if (failure := failure_causing(capture, signal, prompt)) is not None:
        return f"phase {failure.phase} raised {failure.in_words}"
    if capture.status == "unfinished":
        return f"the run ended before: {ended(capture.unfinished)}"
    return ""


_BEFORE_THE_RUN = ("build", "stack", "packages")
"""What a cell needs before it runs; the reason says which of them it lacks."""


def ended(unfinished: Unfinished | None) -> str:
    """Return how a run ended, such as ``no progress for 120 s in phase greedy long``.

    A known step follows in brackets: ``(step 3 of 12)``.
    """
    if unfinished is None:
        return "no reason was recorded"
    step = f" ({unfinished.step})" if unfinished.step else ""
    is_named = unfinished.phase and unfinished.phase not in _BEFORE_THE_RUN
    where = f" in phase {unfinished.phase}" if is_named else ""
    return f"{unfinished.reason}{where}{step}"


def _covers_signal(word: str, signal: Signal) -> bool:
    if word == signal or (word == "greedy" and signal == "decode"):
        return True
    return (word == "forward" and signal in FORWARD) or (word == "prompt" and signal not in STORED)


def _covers_prompt(skipped: str, signal: Signal, prompt: str | None) -> bool:
    if prompt is not None:
        return skipped in ("", prompt)
    # For a stored tensor a longer skip names a detail, such as "weights: origin".
    return not skipped or signal not in STORED


def unreadable_items(pair: Pair, signal: Signal) -> Iterator[ItemComparison]:
    """Yield the tensors of a signal whose values could not be read on one of the sides."""
    sides = (pair.reference, pair.candidate)
    skips = [skip for side in sides for skip in side.skips if skip.tensor_of == signal]
    for skip in {skip.tensor: skip for skip in skips}.values():
        on_meta = skip.why == "meta device"
        yield ItemComparison(
            subject=Subject(tensor=skip.tensor),
            outcome="not compared",
            note=skip.reason,
            reason=Reason.META_DEVICE if on_meta else None,
            excused=on_meta,
        )


def union(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys of both, those of ``a`` first, each once."""
    return tuple(dict.fromkeys((*a, *b)))
