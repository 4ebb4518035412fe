"""Crossings: a model that one stack saves and another stack loads.

probes/samebits_probe/jobs/crossing.py writes :class:`SavedModel` and :class:`CrossingsFile` without
these classes; this module is their schema.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.records.capture import Failure
from samebits.records.made import MadeModel
from samebits.records.record import Record
from samebits.records.result import JobFile, is_repeatable
from samebits_wire import formats

CrossingOutcome = Literal[
    "same bits",
    "differs",
    "save failed",
    "load failed",
    "forward failed",
    "absent",
    "not tried",
]
"""same bits: tensors, config and logits are unchanged. differs: one of them changed. forward
failed: the saved model loads, but its forward raises, and that of the original does not. absent:
saver or loader does not know the original or cannot load it, so nothing follows about saving. not
tried: see the reason."""


class Crossing(Record):
    """One saver and one loader: the saved model, compared with the original in the loader."""

    saver: str
    """Stack that loaded the original checkpoint and saved it."""
    loader: str
    outcome: CrossingOutcome
    tensors: tuple[str, ...] = ()
    """Parameters and buffers that are missing or have other bytes than from the original."""
    unsteady: tuple[str, ...] = ()
    """Tensors with other bytes for which two loads of the original differ as well; they are not
    counted as differences."""
    bare: tuple[str, ...] = ()
    """Tensors without plain bytes on both sides (sparse, quantized), which are not compared."""
    config: tuple[str, ...] = ()
    """``field: value from the original → value from the saved`` in the loader's config."""
    ignored: tuple[str, ...] = ()
    """Fields of the saved config that the loader's config class does not have for the original."""
    keys: tuple[str, ...] = ()
    """``missing x``, ``unexpected x``, ``mismatched x``: keys reported only for the saved model."""
    logits: Literal["same bits", "differs", "not compared"] = "not compared"
    logits_max_abs: float | None = None
    """Largest absolute difference of the logits of one seeded prompt; it can be 0 for different
    bytes (the sign of a zero). None: not compared, or of another shape."""
    restored: tuple[str, ...] = ()
    """Parts of the remote code that ``save_pretrained`` left out and that were put back for the
    loaders: files, and ``auto_map`` of config.json."""
    failure: Failure | None = None
    """The exception for the saved model; if absent, the loader's exception for the original."""
    reason: str = ""

    @property
    def is_same(self) -> bool:
        """True if saving and loading kept all bits."""
        return self.outcome == "same bits"

    @property
    def is_loss(self) -> bool:
        """True if saving in one stack and loading in the other lost something."""
        return self.outcome not in {"same bits", "absent", "not tried"}

    @property
    def is_repeatable(self) -> bool:
        """True if another run of the same load would give the same result."""
        return self.outcome != "not tried" and is_repeatable(self.failure)


class CrossingsReport(Record):
    """Every saver by loader pair of one model in one variant."""

    model: str
    variant: str
    crossings: tuple[Crossing, ...]
    """By saver, then by loader, both oldest first."""
    asked_of: MadeModel | None = None
    """The made model that was saved and loaded in place of a large one; None: the model itself."""


class SavedModel(JobFile):
    """The outcome of ``save_pretrained`` in one stack: ``saved.json`` in the model's folder."""

    format: Literal["samebits-saved"] = "samebits-saved"
    format_version: Literal[4] = formats.CROSSING
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    model: str
    variant: str
    stack: str
    """Id of the saver."""
    outcome: Literal["saved", "failed", "not loaded", "absent", "skipped"]
    """failed: saving raised. not loaded: loading the original raised. absent: the release does not
    know the model. skipped: the model is too large."""
    reason: str = ""
    failure: Failure | None = None
    files: dict[str, str] = Field(default_factory=dict)
    """File name -> BLAKE3, for every file in the folder."""
    restored: tuple[str, ...] = ()
    """As in :attr:`Crossing.restored`."""
    made: MadeModel | None = None
    """What was made, if the folder holds a made model; None: it holds the model itself."""

    @property
    def is_repeatable(self) -> bool:
        """True unless the machine may be the reason of its failure."""
        return is_repeatable(self.failure)


class CrossingsFile(JobFile):
    """One stack's results for every checkpoint that the stacks saved of a model."""

    format: Literal["samebits-crossings"] = "samebits-crossings"
    format_version: Literal[4] = formats.CROSSING
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    model: str
    variant: str
    stack: str
    """Id of the loader."""
    crossings: tuple[Crossing, ...]

    @property
    def is_repeatable(self) -> bool:
        """True if every crossing is."""
        return all(crossing.is_repeatable for crossing in self.crossings)
