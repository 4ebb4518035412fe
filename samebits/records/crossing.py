"""What becomes of a model that one stack saves and another one loads.

probes/samebits_probe/jobs/crossing.py writes :class:`SavedModel` and :class:`CrossingsFile` by hand; this module
is their schema.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.capture import Failure
from samebits.records.record import Record

FORMAT_VERSION: Literal[3] = 3
# History of FORMAT_VERSION:
# 1: first.
# 2: it bears a seal.
# 3: tensors without plain bytes are named.

CrossingOutcome = Literal[
    "same bits",
    "differs",
    "save failed",
    "load failed",
    "forward failed",
    "absent",
    "not tried",
]
"""same bits: tensors, config and logits came back. differs: one of them did not. forward failed:
what was saved loads, and its forward raises where that of the original does not. absent: saver or
loader does not know the original or cannot load it, which says nothing of the saving. not tried:
the reason says why."""


class Crossing(Record):
    """One cell of the saver by loader table: against what the loader makes of the original."""

    saver: str
    """Stack that loaded the original checkpoint and saved it."""
    loader: str
    outcome: CrossingOutcome
    tensors: tuple[str, ...] = ()
    """Parameters and buffers with other bytes than from the original checkpoint, or not there."""
    unsteady: tuple[str, ...] = ()
    """Tensors with other bytes that two loads of the original do not agree on either, so that
    nothing is said of them."""
    bare: tuple[str, ...] = ()
    """Tensors without plain bytes on both sides (sparse, quantized), which are not compared."""
    config: tuple[str, ...] = ()
    """``field: value from the original → value from the saved`` in the loader's own config."""
    ignored: tuple[str, ...] = ()
    """Fields of the saved config that the loader's config class does not have for the original."""
    keys: tuple[str, ...] = ()
    """``missing x``, ``unexpected x``, ``mismatched x``: what loading said of the saved alone."""
    logits: Literal["same bits", "differs", "not compared"] = "not compared"
    logits_max_abs: float | None = None
    """Largest absolute difference of the logits of one seeded prompt; 0 with other bytes is
    possible (a sign of zero); None: not compared, or of another shape."""
    restored: tuple[str, ...] = ()
    """What of the model's own code ``save_pretrained`` left out, and was put back for the loaders:
    files, and ``auto_map`` of config.json."""
    failure: Failure | None = None
    """Of the saved; absent: what the loader raised on the original."""
    reason: str = ""

    @property
    def is_same(self) -> bool:
        """True if there is nothing to tell of it."""
        return self.outcome == "same bits"

    @property
    def is_loss(self) -> bool:
        """True if saving in one stack and loading in the other lost something."""
        return self.outcome not in {"same bits", "absent", "not tried"}


class CrossingsReport(Record):
    """Every saver by loader pair of one model in one variant."""

    model: str
    variant: str
    crossings: tuple[Crossing, ...]
    """Saver by saver, loaders inside, both oldest first."""


class SavedModel(Record):
    """What a stack left of its ``save_pretrained``; lies in the folder as ``saved.json``."""

    format: Literal["samebits-saved"] = "samebits-saved"
    format_version: Literal[3] = FORMAT_VERSION
    model: str
    variant: str
    stack: str
    """Id of the saver."""
    outcome: Literal["saved", "failed", "not loaded", "absent", "skipped"]
    """failed: saving raised. not loaded: loading the original did, so it is no matter of saving.
    absent: the release does not know the model. skipped: it is too large."""
    reason: str = ""
    failure: Failure | None = None
    files: dict[str, str] = Field(default_factory=dict)
    """name -> SHA-256 of every file in the folder."""
    restored: tuple[str, ...] = ()
    """As in :attr:`Crossing.restored`."""


class CrossingsFile(Record):
    """What one stack makes of one model as each stack saved it."""

    format: Literal["samebits-crossings"] = "samebits-crossings"
    format_version: Literal[3] = FORMAT_VERSION
    model: str
    variant: str
    stack: str
    """Id of the loader."""
    crossings: tuple[Crossing, ...]
