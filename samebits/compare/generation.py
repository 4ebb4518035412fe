"""Comparison of what two releases make of the same logits in generate().

Tokens that differ are judged only where the logits cannot be the reason: up to the first token that
differs, both sides were fed the same tokens and computed the same logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.compare.outcome import not_observed, signal_comparison
from samebits.records.comparison import ItemComparison
from samebits.records.subject import Reason, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.compare.pair import Pair
    from samebits.records.capture import Capture
    from samebits.records.comparison import SignalComparison
    from samebits.records.generation import GenerationSignal, GenerationStep, GenerationWay

NAME = "generation"
OTHER_PROMPT = "the prompts differ"
OTHER_LOGITS = "the logits differ before the tokens do: the signal decode compares them"
OTHER_DRAW = "the same distribution before the draw, and another draw from it"
ROUNDED = "the scores to choose from differ by rounding before the tokens do"
TIE = "sequences whose scores are the same but for rounding: either may be chosen"
NO_STEPS = "several tokens are checked in one forward, and the greedy tokens differ, too"

UNIT_ROUNDOFF = 2.0**-24
"""Of float32, in which generate() computes scores, whatever the model's dtype."""
MAX_ROUNDINGS = 64
"""Roundings between logits and a score: a log-softmax, the processors, a sum over the tokens."""


def generation(pair: Pair) -> SignalComparison | None:
    """Compare the ways of generate(); None if neither side was asked for any."""
    reference, candidate = _answers(pair.reference), _answers(pair.candidate)
    if reference is None and candidate is None:
        return None
    if reference is None or candidate is None:
        sides = {"reference": reference is None, "candidate": candidate is None}
        missing = not_observed(pair, NAME, **sides)
        return missing.model_copy(update={"excused": True})
    return signal_comparison(NAME, list(_items(reference, candidate)))


def _answers(capture: Capture) -> GenerationSignal | None:
    usage = capture.signals.usage
    return None if usage is None else usage.generation


def _items(reference: GenerationSignal, candidate: GenerationSignal) -> Iterator[ItemComparison]:
    is_greedy_same = _same_tokens(reference, candidate, "greedy")
    for way in {**reference.ways, **candidate.ways}:
        sides = reference.ways.get(way), candidate.ways.get(way)
        subject = Subject(tensor=way)
        if sides[0] is None or sides[1] is None:
            continue  # its arguments follow from the greedy tokens, which the other items compare
        if reference.prompt != candidate.prompt:
            yield _not_compared(subject, OTHER_PROMPT)
        else:
            yield _item(subject, sides[0], sides[1], is_greedy_same=is_greedy_same)


def _same_tokens(reference: GenerationSignal, candidate: GenerationSignal, way: str) -> bool:
    first, second = reference.ways.get(way), candidate.ways.get(way)
    return first is not None and second is not None and first.tokens == second.tokens


def _item(
    subject: Subject, reference: GenerationWay, candidate: GenerationWay, *, is_greedy_same: bool
) -> ItemComparison:
    if reference.refused or candidate.refused:
        return _not_compared(subject, _refusal(reference.refused, candidate.refused))
    parting = _parting(reference, candidate)
    if reference.tokens == candidate.tokens and (parting is None or parting.what != "scores"):
        return ItemComparison(subject=subject, outcome="identical")
    if reason := _other_reason(reference, candidate, parting, is_greedy_same=is_greedy_same):
        return _not_compared(subject, reason)
    note = _in_words(reference, candidate, parting)
    return ItemComparison(subject=subject, outcome="differs", note=note, reason=Reason.SAME_LOGITS)


class _Parting(NamedTuple):
    """The first step at which two ways differ, and in what."""

    step: int
    what: str
    """``fed``, ``logits`` or ``scores``: the first of them, in the order of computation."""
    rounded: bool
    """True if scores of an earlier step, or of this one, differ by rounding."""


def _parting(reference: GenerationWay, candidate: GenerationWay) -> _Parting | None:
    """Return where two ways part; scores that differ by rounding alone are passed through."""
    rounded = False
    for number, (first, second) in enumerate(zip(reference.steps, candidate.steps, strict=False)):
        for what in ("fed", "logits"):
            if getattr(first, what) != getattr(second, what):
                return _Parting(number, what, rounded)
        if first.scores != second.scores:
            if not _by_rounding(first, second):
                return _Parting(number, "scores", rounded)
            rounded = True
    return _Parting(len(reference.steps), "tokens", rounded=True) if rounded else None


def _by_rounding(first: GenerationStep, second: GenerationStep) -> bool:
    """Return True if the largest scores of a step are the same but for a few roundings."""
    return [index for index, _ in first.top] == [index for index, _ in second.top] and all(
        _near(a, b) for (_, a), (_, b) in zip(first.top, second.top, strict=True)
    )


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= MAX_ROUNDINGS * UNIT_ROUNDOFF * max(abs(a), abs(b))


def _other_reason(
    reference: GenerationWay,
    candidate: GenerationWay,
    parting: _Parting | None,
    *,
    is_greedy_same: bool,
) -> str:
    """Return why a difference is not shown to be one of generate() itself; '' if it is."""
    if parting is not None and parting.what == "logits":
        return OTHER_LOGITS
    if parting is not None and parting.rounded:
        return ROUNDED
    if not _has_scores(reference, candidate):
        return "" if is_greedy_same else NO_STEPS
    if _only_drawn(reference, candidate, parting):
        return OTHER_DRAW
    return TIE if _is_tie(reference, candidate) else ""


def _has_scores(reference: GenerationWay, candidate: GenerationWay) -> bool:
    return all(step.scores for way in (reference, candidate) for step in way.steps)


def _only_drawn(
    reference: GenerationWay, candidate: GenerationWay, parting: _Parting | None
) -> bool:
    """Return True if both sides draw tokens, from scores that are the same until they differ."""
    return reference.drew and candidate.drew and (parting is None or parting.what == "fed")


def _is_tie(reference: GenerationWay, candidate: GenerationWay) -> bool:
    """Return True if the sequences that beams choose have the same scores but for roundings.

    The sum over the tokens and the division by the length round, in either order.
    """
    values = reference.values, candidate.values
    return all(values) and len(values[0]) == len(values[1]) and all(map(_near, *values))


def _in_words(reference: GenerationWay, candidate: GenerationWay, parting: _Parting | None) -> str:
    if parting is not None and parting.what == "scores":
        return (
            f"step {parting.step}: the same logits, and other scores to choose from: a logits "
            "processor computes something else"
        )
    row, place = _first_token(reference, candidate)
    first, second = (_token(way, row, place) for way in (reference, candidate))
    return (
        f"the same logits, and other tokens: row {row} has {first} in the reference and {second} "
        f"here, as its token {place}"
    )


def _first_token(reference: GenerationWay, candidate: GenerationWay) -> tuple[int, int]:
    """Return row and position of the first token that differs."""
    for row in range(max(len(reference.tokens), len(candidate.tokens))):
        for place in range(
            max(len(tokens) for way in (reference, candidate) for tokens in way.tokens)
        ):
            if _token(reference, row, place) != _token(candidate, row, place):
                return row, place
    return 0, 0


def _token(way: GenerationWay, row: int, place: int) -> str:
    tokens = way.tokens[row] if row < len(way.tokens) else ()
    return str(tokens[place]) if place < len(tokens) else "nothing"


def _refusal(reference: str, candidate: str) -> str:
    if reference and candidate:
        return f"raises in both: {candidate}"
    return f"raises {'in the reference' if reference else 'here'}: {reference or candidate}"


def _not_compared(subject: Subject, note: str) -> ItemComparison:
    return ItemComparison(subject=subject, outcome="not compared", note=note, excused=True)
