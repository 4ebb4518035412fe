"""Comparison of what two releases leave behind in the model that they run."""

from __future__ import annotations

from samebits.compare.forwards import OTHER_INPUTS, same_inputs
from samebits.compare.named import named
from samebits.compare.outcome import signal_comparison
from samebits.compare.outputs import NAME as OUTPUTS
from samebits.compare.pair import Pair
from samebits.records.capture import Capture
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.state import StateSignal
from samebits.records.subject import Reason, Subject

NAME = "state"
NOT_REPEATED = "each forward of it gives different bytes, so nothing shows what was left behind"
BOTH = "both sides leave the same state behind"
BOTH_DIFFER = (
    "both sides leave state behind, and their forwards differ before: what they leave cannot be "
    "compared"
)


def state(pair: Pair) -> SignalComparison | None:
    """Compare whether the first prompt gives its bytes again; None if neither side tried."""
    sides = pair.reference.signals.state, pair.candidate.signals.state
    if sides[0] is None and sides[1] is None:
        return None
    return signal_comparison(NAME, [_item(pair, *sides)])


def _item(
    pair: Pair, reference: StateSignal | None, candidate: StateSignal | None
) -> ItemComparison:
    if reference is None or candidate is None:
        some = reference or candidate
        assert some is not None
        note, _ = pair.missing(
            NAME, some.prompt, reference=reference is None, candidate=candidate is None
        )
        return _not_compared(some.prompt, note)
    if reference.prompt != candidate.prompt or not same_inputs(pair, reference.prompt):
        return _not_compared(reference.prompt, OTHER_INPUTS)
    if not (reference.repeats and candidate.repeats):
        return _not_compared(reference.prompt, NOT_REPEATED)
    subject = Subject(prompt=reference.prompt)
    if reference.holds and candidate.holds:
        return ItemComparison(subject=subject, outcome="identical")
    if not reference.holds and not candidate.holds:
        return _both_left(pair, reference, candidate)
    left, where, rest = (
        (reference, "in the reference", "in the candidate")
        if candidate.holds
        else (candidate, "in the candidate", "in the reference")
    )
    note = f"{where} it leaves {left.in_words} behind{_distance(left)}; {rest} it does not"
    return ItemComparison(subject=subject, outcome="differs", note=note, reason=_reason(left))


def _both_left(pair: Pair, reference: StateSignal, candidate: StateSignal) -> ItemComparison:
    subject = Subject(prompt=reference.prompt)
    if reference.hashes == candidate.hashes:
        return ItemComparison(subject=subject, outcome="identical", note=BOTH)
    if _first(pair.reference, subject.prompt) != _first(pair.candidate, subject.prompt):
        return _not_compared(subject.prompt, BOTH_DIFFER)
    note = (
        f"both leave state behind, and not the same: {reference.in_words}{_distance(reference)} "
        f"in the reference, {candidate.in_words}{_distance(candidate)} in the candidate"
    )
    is_shown = _reason(reference) and _reason(candidate)
    return ItemComparison(subject=subject, outcome="differs", note=note, reason=is_shown or None)


def _first(capture: Capture, prompt: str) -> tuple[str, dict[str, str]]:
    """Return the hashes of what the prompt's recorded forward returned."""
    facts = (capture.signals.forward or {}).get(prompt)
    logits = facts.logits.hash if facts is not None and facts.logits is not None else ""
    refs = named(OUTPUTS, capture).get(prompt, {})
    return logits, {name: ref.hash for name, ref in refs.items()}


def _reason(left: StateSignal) -> Reason | None:
    return Reason.STATE if left.is_undone else None


def _distance(left: StateSignal) -> str:
    if left.distance is None or not left.distance.n_differ:
        return ""
    return f", and the next forward of it is off by {left.distance.max_abs:.2g}"


def _not_compared(prompt: str, note: str) -> ItemComparison:
    return ItemComparison(
        subject=Subject(prompt=prompt), outcome="not compared", note=note, excused=True
    )
