"""Crossings: a model that one stack saves and another stack loads.

probes/samebits_probe/questions/crossings/ writes :class:`SavedModel` and :class:`CrossingsFile` without
these classes; this module is their schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import Field

from samebits.questions.texts.records import OperationComparison, Outcomes
from samebits.records.capture import Failure
from samebits.records.kinds import Kind
from samebits.records.made import MadeModel
from samebits.records.question import Answer, Key, NoAnswer
from samebits.records.record import Record
from samebits.records.report import Row
from samebits.records.result import CellFile, is_repeatable

FORMAT_VERSION: Literal[7] = 7

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


PartOutcome = Literal[
    "same", "other", "neither", "load failed", "save failed", "absent", "not tried"
]
"""same: it gives what it gave in the release that saved it. other: it does not, but what the loader gives
for the original. neither: something is as in none of both. absent: saver or loader cannot load the original's."""


class PartCrossing(Record):
    """What was saved beside a model, for one saver and one loader: a tokenizer, a processor, settings."""

    saver: str
    loader: str
    part: str
    """``tokenizer``, ``tokenizer without config.json``, ``processor``, ``image processor``, ``generation config`` …"""
    outcome: PartOutcome
    differences: tuple[OperationComparison, ...] = ()
    """Operations that give something else than in the saver, the first case of each with the saver's as the
    reference. Of those that only the loader does otherwise, whoever saved, only for ``other``."""
    failure: Failure | None = None
    reason: str = ""

    @property
    def is_loss(self) -> bool:
        """True if the copy does not give what it gave in its saver."""
        return self.outcome not in {"same", "absent", "not tried"}


class CrossingsOfRow(Answer):
    """Every saver by loader pair of one model in one variant."""

    crossings: tuple[Crossing, ...]
    """By saver, then by loader, both oldest first."""
    parts: tuple[PartCrossing, ...] = ()
    """The same of what was saved beside the model."""
    files: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Stack -> names of the files that it wrote, without weights and code; only for stacks that saved every part."""
    asked_of: MadeModel | None = None
    """The made model that was saved and loaded in place of a large one; None: the model itself."""

    def into(self, loader: str) -> Iterator[Crossing]:
        """Yield the crossings in which a stack loads what each stack saved."""
        yield from (crossing for crossing in self.crossings if crossing.loader == loader)


class SavedPart(Record):
    """What was saved beside a model, and what it gives in its saver."""

    outcome: Literal["saved", "failed", "not loaded"]
    failure: Failure | None = None
    facts: dict[str, Outcomes] = Field(default_factory=dict)
    """``texts`` and ``conversations`` of a tokenizer, ``calls`` of a processor, ``values`` of settings."""


class SavedModel(CellFile):
    """The outcome of ``save_pretrained`` in one stack: ``saved.json`` in the model's folder."""

    format: Literal["samebits-saved"] = "samebits-saved"
    format_version: Literal[7] = FORMAT_VERSION
    outcome: Literal["saved", "failed", "not loaded", "absent", "skipped"]
    """failed: saving raised. not loaded: loading the original raised. absent: the release does not
    know the model. skipped: the model is too large."""
    reason: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    """File name -> BLAKE3, for every file in the folder."""
    restored: tuple[str, ...] = ()
    """As in :attr:`Crossing.restored`."""
    made: MadeModel | None = None
    """What was made, if the folder holds a made model; None: it holds the model itself."""
    parts: dict[str, SavedPart] = Field(default_factory=dict)
    """What was saved beside the model, whatever became of the model."""

    @property
    def is_loadable(self) -> bool:
        """True if there is something to load."""
        return self.outcome == "saved" or any(p.outcome == "saved" for p in self.parts.values())


class LoadedPart(Record):
    """What a part of a copy gives in its loader."""

    saver: str
    """'' for the original."""
    part: str
    outcome: Literal["same", "other", "load failed"]
    """same: what it gives in its saver."""
    failure: Failure | None = None
    facts: dict[str, Outcomes] = Field(default_factory=dict)


class CrossingsFile(CellFile):
    """One stack's results for every checkpoint that the stacks saved of a model."""

    format: Literal["samebits-crossings"] = "samebits-crossings"
    format_version: Literal[7] = FORMAT_VERSION
    crossings: tuple[Crossing, ...]
    parts: tuple[LoadedPart, ...] | None = None
    """None: the job ended before it came to them."""

    @property
    def is_repeatable(self) -> bool:
        """True if every crossing is, and every part."""
        parts = self.parts is not None and all(is_repeatable(p.failure) for p in self.parts)
        return parts and all(crossing.is_repeatable for crossing in self.crossings)


SAVE = Kind("crossings.save", "saved", "crossings")
LOAD = Kind("crossings.load", "crossings", "crossings")

CROSSINGS = Key(
    "crossings",
    NoAnswer,
    CrossingsOfRow,
    word="save_load",
    switch="Whether each release saves the model and every release loads what was saved.",
    hint="does each release load what every other release saved",
    of_pairs=True,
    kinds=(SAVE, LOAD),
)


def crossed(rows: Iterable[Row]) -> dict[str, CrossingsOfRow]:
    """Return the crossings of models, each of which crosses in one row."""
    answers = ((row.model, CROSSINGS.in_row(row.answers)) for row in rows)
    return {model: answer for model, answer in answers if answer is not None}
