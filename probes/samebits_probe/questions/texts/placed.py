"""What a tokenizer makes of words that have places: boxes on a page, paths in a document, spans of entities in a text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from samebits_probe.cell.outcomes import Outcomes
from samebits_probe.cell.tokenizer import BOXES, boxes_of

PLACED = "words with places"
_OF_WORDS: dict[str, Callable[[int], list[Any]]] = {
    BOXES: boxes_of,
    "xpaths": lambda n: [f"/html/body/div/p[{i + 1}]" for i in range(n)],
}
"""Argument of the call -> a place for each of so many words."""
_SPANS = "entity_spans"
_MAX_SPANS = 2
"""Some classes take one entity, and others two."""
_QUESTION = "what is this"


def placed(outcomes: Outcomes, tokenizer: Any, rows: list[list[str]]) -> None:
    """Ask for words with their places, behind a question and in a batch, and for a text with entities."""
    taken = inspect.signature(type(tokenizer).__call__).parameters
    for name, places in _OF_WORDS.items():
        if name in taken:
            of_rows = [places(len(words)) for words in rows]
            _ask(outcomes, tokenizer, name, rows[0], **{name: of_rows[0]})
            _ask(outcomes, tokenizer, f"{name}, a pair", _QUESTION, rows[0], **{name: of_rows[0]})
            _ask(outcomes, tokenizer, f"{name}, a batch", rows, padding=True, **{name: of_rows})
    for number in range(1, _MAX_SPANS + 1) if _SPANS in taken else ():
        text, spans = " ".join(rows[0]), [*_spans(rows[0])][:number]
        _ask(outcomes, tokenizer, f"{_SPANS}, {number}", text, **{_SPANS: spans})


def _spans(words: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where each word begins and ends in the text of all."""
    start = 0
    for word in words:
        yield start, start + len(word)
        start += len(word) + 1


def _ask(outcomes: Outcomes, tokenizer: Any, case: str, *texts: Any, **named: Any) -> None:
    # whether there are token types by default is the release's own affair
    outcomes.call(
        PLACED, case, lambda: _fields(tokenizer(*texts, return_token_type_ids=False, **named))
    )


def _fields(encoding: Any) -> list[list[str]]:
    """Return each field of an encoding as its name and its values."""
    return [[name, *map(str, values)] for name, values in sorted(encoding.items())]
