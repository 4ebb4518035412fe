"""Smaller cases to try: fewer rows, layers or tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator

from samebits.records.capsule import Fed, Feed, Question
from samebits.records.comparison import CellResult
from samebits.records.subject import Subject

MAX_TRIALS = 8
"""Smaller cases to try, each in both stacks."""

KEPT_SHARE = 0.1
"""Share of the largest distance that a smaller case has to keep.

If only rounding of 1e-6 remains of a difference of 6.0, it is not the same bug. An accepted case is
judged again before it is used.
"""

_TOKENS = "input_ids"
_MASK = "attention_mask"
_LAYER_NUMBER = re.compile(r"\D*\.(\d+)\b")
"""The number in a layer's name; its place counts layers of encoder and decoder together."""


def layer_counts(result: CellResult, n: int) -> Iterator[int]:
    """Yield numbers of layers below ``n``: one, up to the first difference, half of them."""
    first = next(_first_layers(result), None)
    counts = [1, *([first + 1] if first is not None else []), n // 2]
    yield from (count for count in dict.fromkeys(counts) if 0 < count < n)


def _first_layers(result: CellResult) -> Iterator[int]:
    for signal in result.signals:
        if signal.signal == "hidden_states":
            for item in signal.items:
                number = _layer_number(item.subject)
                if number is not None and item.outcome == "differs" and not item.excused:
                    yield number


def _layer_number(subject: Subject) -> int | None:
    matches = (_LAYER_NUMBER.match(name) for name in subject.names)
    return next((int(match[1]) for match in matches if match), None)


def single_rows(question: Question) -> Iterator[Question]:
    """Yield the question with one row of its batch, without padding and without a mask."""
    tokens, mask = question.feed.get(_TOKENS), question.feed.get(_MASK)
    if tokens is None or mask is None or len(tokens.rows) < 2:
        return
    if not all(fed.is_rows for fed in question.feed.values()):
        return  # all rows share one stream of numbers, or belong together in an unknown way
    order = sorted(range(len(tokens.rows)), key=lambda i: (i != question.row, sum(mask.rows[i])))
    for i in order:
        row = tuple(t for t, real in zip(tokens.rows[i], mask.rows[i], strict=True) if real)
        rest = {
            key: Fed(rows=(fed.rows[i],))
            for key, fed in question.feed.items()
            if key not in {_TOKENS, _MASK}
        }
        fed: Feed = {_TOKENS: Fed(rows=(row,)), **rest}
        yield question.model_copy(update={"feed": fed, "real": None, "row": 0})


def fewer_tokens(
    question: Question, places: tuple[tuple[int, ...] | None, ...]
) -> Iterator[Question]:
    """Yield the question with a shorter prompt: two tokens, up to a difference, half of it.

    A batch is not shortened, because its rows would need new padding. ``places`` are indices of
    elements that differ; in a forward their second number is the position.
    """
    tokens = question.feed.get(_TOKENS)
    if tokens is None or len(tokens.rows) != 1:
        return
    if any(fed.data or fed.constant for fed in question.feed.values()):
        return  # what the user gives has the length of the tokens, or another
    row = tokens.rows[0]
    differing = [at[1] + 1 for at in places if at is not None and len(at) > 2]
    lengths = [2, *(differing if question.kind == "forward" else ()), len(row) // 2]
    for n in dict.fromkeys(lengths):
        if 1 < n < len(row):
            yield question.model_copy(update={"feed": _first_tokens(question.feed, n)})


def _first_tokens(feed: Feed, n: int) -> Feed:
    return {
        key: Fed(rows=tuple(row[:n] for row in fed.rows)) if key in {_TOKENS, _MASK} else fed
        for key, fed in feed.items()
    }
