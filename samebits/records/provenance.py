"""Where every tensor of a loaded model comes from, and whether anything ever wrote it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.record import Record

Source = Literal[
    "loaded",
    "tied",
    "derived",
    "reinitialised",
    "unwritten",
    "partly written",
    "unexplained",
]
"""loaded: bytes of the checkpoint, perhaps through a known layout change. tied: the same memory as
another tensor. derived: equal to a model made fresh from the config. reinitialised: another load
with another seed gives other bytes. unwritten, partly written: the load left memory as it was.
unexplained: none of these."""


class Provenance(Record):
    """One parameter or buffer right after the load."""

    kind: Literal["parameter", "buffer", "non-persistent buffer"]
    source: Source
    detail: str = ""
    """``transpose of a.weight``, ``tied to lm_head.weight`` …"""
    written: Literal["all", "partly", "none", "not covered"]
    """Whether the poisoned load left any of its elements as memory was."""
    n_unwritten: int = 0
    """Elements that still held the poison."""
    not_covered: str = ""
    """Why nothing can be said of whether it was written."""
    steady: bool | None = None
    """Whether a second load, under another seed and over other memory, gave the same bytes; None:
    not compared."""
    fresh: Literal["equal", "differs", "absent", "not compared"] = "not compared"
    """Against the same tensor of a model made fresh from the config."""
    ignored: bool = False
    """True if the checkpoint has a tensor of this name with other bytes, in its dtype and in this
    tensor's."""
    stored_as: str = ""
    """That tensor's name in the checkpoint; '' where it is the same."""

    @property
    def is_uncovered(self) -> bool:
        """True if nobody knows whether it was written: the checkpoint's bytes were."""
        return self.written == "not covered" and self.source not in ("loaded", "tied")

    @property
    def is_plain(self) -> bool:
        """True if it comes from where tensors should, and is known to be written."""
        expected = self.source in ("loaded", "tied", "derived")
        return expected and not self.ignored and not self.is_uncovered


class RoundTrip(Record):
    """The model saved and loaded again in the same stack."""

    outcome: Literal["same bits", "differs", "save failed", "load failed", "not tried"]
    tensors: tuple[str, ...] = ()
    """Parameters and buffers that came back with other bytes, or not at all."""
    config: tuple[str, ...] = ()
    """Config fields that came back with another value."""
    logits: Literal["same bits", "differs", "not compared"] = "not compared"
    reason: str = ""
    """The exception, or why it was not tried."""


class IntegritySignal(Record):
    """Whether loading did what it says, from one stack alone."""

    poison: str
    """What uninitialised memory was filled with, and whether that was seen to work."""
    tensors: dict[str, Provenance] = Field(default_factory=dict)
    """Every parameter and buffer, persistent or not."""
    silent: tuple[str, ...] = ()
    """Tensors that came from chance or from nowhere although loading reported no missing,
    unexpected or mismatched key for them."""
    stored_dtypes: dict[str, int] = Field(default_factory=dict)
    """dtype -> number of tensors in the checkpoint's files."""
    default_dtypes: dict[str, int] | None = None
    """dtype -> number of parameters of a load that asks for no dtype; None: not tried, as where
    neither checkpoint nor config has another dtype than float32."""
    round_trip: RoundTrip | None = None
    seconds: float = 0.0
