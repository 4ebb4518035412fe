"""The origin of every tensor of a loaded model, and whether the load wrote it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from samebits.records.record import RAISED, Record
from samebits.records.written import Written

Source = Literal[
    "loaded",
    "tied",
    "derived",
    "reinitialised",
    "unwritten",
    "partly written",
    "unexplained",
]
"""loaded: bytes of the checkpoint, possibly with a known layout change. tied: the same memory as
another tensor. derived: equal to a new model made from the config. reinitialised: a load with
another seed gives different bytes. unwritten, partly written: the load did not write the memory, or
only a part of it. unexplained: none of these."""


class Provenance(Record):
    """One parameter or buffer right after the load."""

    kind: Literal["parameter", "buffer", "non-persistent buffer"]
    source: Source
    detail: str = ""
    """``transpose of a.weight``, ``tied to lm_head.weight`` …"""
    written: Literal["all", "partly", "none", "not covered"]
    """Which of its elements a load into poisoned memory wrote."""
    n_unwritten: int = 0
    """Number of elements that still contained the poison."""
    not_covered: str = ""
    """Why it is unknown whether it was written."""
    steady: bool | None = None
    """Whether a second load, with another seed and another poison, gave the same bytes; None: not
    compared."""
    fresh: Literal["equal", "differs", "absent", "not compared"] = "not compared"
    """Comparison with the same tensor of a new model made from the config."""
    ignored: bool = False
    """True if the checkpoint has a tensor of this name whose bytes differ, both in its own dtype
    and in the dtype of this tensor."""
    stored_as: str = ""
    """Name of that tensor in the checkpoint; '' if it is the same."""

    restored_without: tuple[str, ...] | None = None
    """The methods without which a load gives this tensor the checkpoint's bytes, such as
    ``_init_weights``; ``_tied_weights_keys``: with ties turned round, target for source; () if none
    of this does; None: not tried, as nothing is lost, or the model is too large."""

    @property
    def is_uncovered(self) -> bool:
        """True if it is unknown whether it was written; the checkpoint's bytes certainly were."""
        return self.written == "not covered" and self.source not in ("loaded", "tied")

    @property
    def is_plain(self) -> bool:
        """True if it has an expected origin and is known to be written."""
        expected = self.source in ("loaded", "tied", "derived")
        return expected and not self.ignored and not self.is_uncovered


class RoundTrip(Record):
    """Comparison of a model with itself after a save and a load in the same stack."""

    outcome: Literal["same bits", "differs", "save failed", "load failed", "not tried"]
    tensors: tuple[str, ...] = ()
    """Parameters and buffers that are missing or have other bytes after the load."""
    config: tuple[str, ...] = ()
    """Config fields that have another value after the load."""
    logits: Literal["same bits", "differs", "not compared"] = "not compared"
    reason: str = ""
    """The exception, or why it was not tried."""
    inferred: bool = False
    """True if nothing was written and loaded again: saving gives the tensors, files and config that
    were loaded, and two loads of these gave the same tensors."""


class IntegritySignal(Record):
    """Whether the load worked as it reported, from the observations of one stack."""

    poison: str
    """The pattern that filled uninitialised memory, and whether a check found it there."""
    tensors: dict[str, Provenance] = Field(default_factory=dict)
    """Every parameter and buffer, persistent or not."""
    silent: tuple[str, ...] = ()
    """Tensors with random or unwritten values, although loading reported no missing, unexpected or
    mismatched key for them."""
    stored_dtypes: dict[str, int] = Field(default_factory=dict)
    """dtype -> number of tensors in the checkpoint's files."""
    default_dtypes: dict[str, int] | None = None
    """dtype -> number of parameters after a load without a dtype argument; None: not tried, for
    example because checkpoint and config have no other dtype than float32."""
    round_trip: RoundTrip | None = None
    written: Written | None = None
    """What the save of the round trip wrote; None: nothing was saved, and in a report."""
    raised: Annotated[dict[str, str], RAISED] = Field(default_factory=dict)
    """``second load``, ``save``, ``load of the saved``, ``load without a dtype`` -> the exception, '' if it
    worked."""
    seconds: float = 0.0
