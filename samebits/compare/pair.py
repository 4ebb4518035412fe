"""Two runs side by side, where their values come from, and why something is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from samebits.compare.phases import FORWARD, failure_behind, same, signals_of
from samebits.records.comparison import ItemComparison

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from samebits.records.capture import Capture, ForwardFacts, Unfinished
    from samebits.records.ids import Signal
    from samebits.records.tensor import TensorRef


class TensorSource(Protocol):
    """Where values are had from: samebits.storage.store.Store, or a dict in a test."""

    def has(self, ref: TensorRef) -> bool:
        """Return True if :meth:`tensor` can give the values."""

    def tensor(self, ref: TensorRef) -> NDArray[Any]:
        """Return the values, in the ref's dtype and shape."""


@dataclass(frozen=True)
class Pair:
    """A complete run of the reference cell and one of the candidate cell."""

    reference: Capture
    candidate: Capture
    values: TensorSource

    @property
    def prompts(self) -> tuple[str, ...]:
        """Every prompt that either side ran a forward over, in the reference's order."""
        return union(self.reference.signals.forward or {}, self.candidate.signals.forward or {})

    def forwards(self, prompt: str) -> tuple[ForwardFacts | None, ForwardFacts | None]:
        """Return both sides' forward over ``prompt``, None where there was none."""
        reference = (self.reference.signals.forward or {}).get(prompt)
        return reference, (self.candidate.signals.forward or {}).get(prompt)

    def missing(
        self, signal: Signal, prompt: str | None, *, reference: bool, candidate: bool
    ) -> tuple[str, bool]:
        """Return why something is not observed on the sides that are True, and if all say so."""
        if reference and candidate and (both := self._raised_on_both(signal, prompt)):
            return both, True
        sides = []
        if reference:
            sides.append(("in the reference", reason(self.reference, signal, prompt)))
        if candidate:
            sides.append(("here", reason(self.candidate, signal, prompt)))
        reasons = {why for _, why in sides}
        if len(sides) == 2 and len(reasons) == 1 and all(reasons):
            return f"not observed on either side: {sides[0][1]}", True
        told = [f"not observed {where}: {why or 'no reason was recorded'}" for where, why in sides]
        return "; ".join(told), all(reasons)

    def _raised_on_both(self, signal: Signal, prompt: str | None) -> str:
        """Return that both sides raised the same exception in place of a signal, '' if not."""
        sides = (self.reference, self.candidate)
        one, other = (failure_behind(side, signal, prompt) for side in sides)
        if one is None or other is None or not same(one, other):
            return ""
        return f"raises the same exception in the reference: {other.type}: {other.in_short}"


def reason(capture: Capture, signal: Signal, prompt: str | None = None) -> str:
    """Return why ``capture`` lacks ``signal`` (for ``prompt``), '' if no skip says.

    A skip speaks of a signal (``greedy``), of all that a forward carries (``forward``), or of
    a prompt (``prompt long``); a signal's or forward's may name the prompt too (``logits long``).
    What no forward is fed is not decoded either.
    Else an exception of the phase, or the early end of the run, is the reason.
    """
    for skip in capture.skips:
        word, _, of = skip.what.replace(":", " ").partition(" ")
        speaks = _speaks_of(word, signal) or (skip.why == "inputs" and signal in signals_of(word))
        if speaks and _names(of.strip(), signal, prompt):
            return skip.reason.strip()
    if (failure := failure_behind(capture, signal, prompt)) is not None:
        return f"phase {failure.phase} raised {failure.type}: {failure.in_short}"
    if capture.status == "unfinished":
        return f"the run ended before: {ended(capture.unfinished)}"
    return ""


def ended(unfinished: Unfinished | None) -> str:
    """Return how a run ended, such as ``no progress for 120 s in phase greedy long (step 3 of 12)``."""
    if unfinished is None:
        return "it left no reason"
    step = f" ({unfinished.step})" if unfinished.step else ""
    where = f" in phase {unfinished.phase}" if unfinished.phase else ""
    return f"{unfinished.reason}{where}{step}"


def _speaks_of(word: str, signal: Signal) -> bool:
    if word == signal:
        return True
    return (word == "forward" and signal in FORWARD) or (
        word == "prompt" and (signal in FORWARD or signal == "greedy")
    )


def _names(of: str, signal: Signal, prompt: str | None) -> bool:
    if prompt is not None:
        return of in ("", prompt, prompt.partition("[")[0])  # a batch's rows are its prompt's
    # Of weights and buffers a longer skip speaks of a detail, such as "weights: origin".
    return not of or signal in FORWARD or signal == "greedy"


def bare(pair: Pair, signal: Literal["weights", "buffers"]) -> Iterator[ItemComparison]:
    """Yield the tensors of a signal whose numbers could not be had on a side."""
    sides = (pair.reference, pair.candidate)
    start = f"tensor {signal} "
    skips = [skip for side in sides for skip in side.skips if skip.what.startswith(start)]
    for what, note in {skip.what: skip.reason for skip in skips}.items():
        name = what.removeprefix(start)
        # on the meta device there are no numbers, so that none are kept back
        excused = "meta device" in note
        yield ItemComparison(name=name, outcome="not compared", note=note, excused=excused)


def union(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of both, those of ``a`` first, each once."""
    return tuple(dict.fromkeys((*a, *b)))
