"""What generate() makes of given logits in one release, as hashes and tokens."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from samebits.records.record import RAISED, Record


class GenerationWay(Record):
    """The result of generate() with some arguments; the logits are the same in every release."""

    end: int | tuple[int, ...] | None = None
    """The argument eos_token_id; None: there is no end token, or the defaults decide."""
    tokens: tuple[tuple[int, ...], ...] = ()
    """Every sequence that it returns; with the prompt, unless the model has an encoder."""
    fed: tuple[tuple[int, ...], ...] = ()
    """Rows and tokens of each forward."""
    scores: tuple[str, ...] = ()
    """Hash of what each token is chosen from. Empty where they are sums (beams), and where one
    forward checks several tokens of a draft."""
    values: tuple[float, ...] = ()
    """Beams only: the score of every sequence that it returns, by which it chose them."""
    drew: bool = False
    """True if it drew random numbers."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""


class ProcessorScores(Record):
    """The result of a logits processor on fixed scores."""

    scores: str = ""
    """Hash of the scores that it returns."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""


class GenerationSignal(Record):
    """The ways of generate(), each tried once on the same prompt."""

    prompt: str
    """Hash of its token ids."""
    config: dict[str, Any] = Field(default_factory=dict)
    """What generate() uses without arguments; fields that are None are left out."""
    ways: dict[str, GenerationWay]
    """``greedy``, ``defaults``, ``sampling``, ``beams``, ``penalties``, ``end token``, ``prompt
    lookup``, ``assistant`` …"""
    processors: dict[str, ProcessorScores] = Field(default_factory=dict)
    """Class of a logits processor -> its result."""
