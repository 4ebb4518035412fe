"""Which smaller cases are worth a try, and is the difference still the same one in them?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.records.capsule import Fed, Feed, Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.comparison import CellResult

MOST_TRIALS = 8
"""Smaller cases that are tried, each in both stacks."""

KEPT_SHARE = 0.1
"""Share of the largest distance that a smaller case has to keep. A bug of 6.0 that leaves rounding
of 1e-6 behind is not the bug any more; what is accepted here is judged anew before it is said."""

_TOKENS = "input_ids"
_MASK = "attention_mask"
_LAYER = re.compile(r"· layer \d+ \(\D*\.(\d+)\b")
"""The number in a layer's own name; its place counts the layers of encoder and decoder alike."""


def layer_counts(result: CellResult, n: int) -> Iterator[int]:
    """Yield numbers of layers below ``n``: one, up to where it differs first, half of them."""
    first = next(_first_layers(result), None)
    wanted = [1, *([first + 1] if first is not None else []), n // 2]
    yield from (count for count in dict.fromkeys(wanted) if 0 < count < n)


def _first_layers(result: CellResult) -> Iterator[int]:
    for signal in result.signals:
        if signal.signal == "hidden_states":
            for item in signal.items:
                found = _LAYER.search(item.name)
                if found and item.outcome == "differs" and not item.excused:
                    yield int(found[1])


def single_rows(question: Question) -> Iterator[Question]:
    """Yield the question with one row of its batch, without that row's padding, and no mask."""
    tokens, mask = question.feed.get(_TOKENS), question.feed.get(_MASK)
    if tokens is None or mask is None or len(tokens.rows) < 2:
        return
    if any(fed.seed is not None for fed in question.feed.values()):
        return  # one stream of numbers for all rows
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
    """Yield the question with the beginning of its prompt: two tokens, up to where it differs, half.

    A batch is left as it is: its rows would have to be padded anew. ``places`` are indices of
    elements that differ; their second number is the position in a forward.
    """
    tokens = question.feed.get(_TOKENS)
    if tokens is None or len(tokens.rows) != 1:
        return
    row = tokens.rows[0]
    differs = [at[1] + 1 for at in places if at is not None and len(at) > 2]
    wanted = [2, *(differs if question.kind == "forward" else ()), len(row) // 2]
    for n in dict.fromkeys(wanted):
        if 1 < n < len(row):
            yield question.model_copy(update={"feed": _cut(question.feed, n)})


def _cut(feed: Feed, n: int) -> Feed:
    return {
        key: Fed(rows=tuple(row[:n] for row in fed.rows)) if key in {_TOKENS, _MASK} else fed
        for key, fed in feed.items()
    }
