"""generate() in several ways over one prompt, step by step, as hashes."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from samebits.records.record import Record


class GenerationStep(Record):
    """One forward of generate(). The first one has a row for each beam: its first row counts."""

    fed: str
    """Hash of the token ids that it is fed; '' if it is fed none."""
    logits: str
    """Hash of the logits of the last position; '' if it returns none."""
    scores: str = ""
    """Hash of what the next token is chosen from: the logits behind all processors. '' where one
    forward checks several tokens of a draft."""
    top: tuple[tuple[int, float], ...] = ()
    """Index and value of the largest finite scores of all rows, flattened; the largest first."""


class GenerationWay(Record):
    """The result of generate() with some arguments."""

    tokens: tuple[tuple[int, ...], ...] = ()
    """The new tokens of every sequence that it returns."""
    steps: tuple[GenerationStep, ...] = ()
    values: tuple[float, ...] = ()
    """Beams only: the score of every sequence that it returns, by which it chose them."""
    drew: bool = False
    """True if it drew random numbers."""
    refused: str = ""
    """The exception."""


class GenerationSignal(Record):
    """The ways of generate(), each tried once on the same prompt."""

    prompt: str
    """Hash of its token ids."""
    config: dict[str, Any] = Field(default_factory=dict)
    """What generate() uses without arguments; fields that are None are left out."""
    ways: dict[str, GenerationWay]
    """``greedy``, ``defaults``, ``sampling``, ``beams``, ``beams that end``, ``penalties``, ``end
    token``, ``minimum``, ``prompt lookup``, ``assistant``."""
