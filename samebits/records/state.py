"""Whether a prompt gives the bytes of its first time after all else, and what was left if not."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.distance import Distance
from samebits.records.record import Record


class LeftBehind(Record):
    """One value of the model that is not as it was before the first prompt."""

    name: str
    """Such as ``model.rotary_emb.inv_freq``."""
    kind: Literal["buffer", "parameter", "cache", "attribute"]


class Draw(Record):
    """An operation that draws random numbers."""

    op: str
    """Its name in torch's ``aten``, such as ``native_dropout``."""
    function: str
    """The function that calls it."""
    place: str
    """File and line of the call."""


class StateSignal(Record):
    """The first prompt's forward, once more after all prompts and generate()."""

    prompt: str
    holds: bool
    """True if every output has the bytes of the first time."""
    outputs: tuple[str, ...] = ()
    """The outputs whose bytes are others."""
    hashes: dict[str, str] = Field(default_factory=dict)
    """Output -> hash, of the second time."""
    repeats: bool = True
    """False if a third forward gives yet other bytes: the model draws or counts, and so its two
    runs differ. Nothing but :attr:`draws` is then looked for."""
    draws: tuple[Draw, ...] = ()
    """What draws random numbers in that forward; empty if it repeats."""
    changes: tuple[LeftBehind, ...] = ()
    """Values that changed since the first prompt, the first 20."""
    is_undone: bool = False
    """True if the forward gives the first bytes again once all of them are as they were."""
    causes: tuple[LeftBehind, ...] = ()
    """The one of them that brings the bytes back by itself, else all; empty if they do not."""
    distance: Distance | None = None
    """Distance of the logits of the first and the second time; None if it is not known."""

    @property
    def is_left(self) -> bool:
        """True if the model left something behind that changes its next forward."""
        return not self.holds and self.repeats

    @property
    def in_words(self) -> str:
        """What was left behind, such as ``the buffer model.rotary_emb.inv_freq``."""
        if not self.causes:
            return "something outside of the attributes and buffers of its modules"
        first, *others = self.causes
        more = f" and {len(others)} more" if others else ""
        return f"the {first.kind} {first.name}{more}"
