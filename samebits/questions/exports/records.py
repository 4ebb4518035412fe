"""Programs that torch.export and torch.jit.trace make of a model in one environment, and two environments compared.

probes/samebits_probe/questions/exports/ writes :class:`ExportsSignal` without this class; it is the schema.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from samebits.records.question import Answer, ComparedOfRow, Key
from samebits.records.record import Record
from samebits_wire.rounding import stays

Distance = Annotated[float, Field(ge=0)]
_ROUNDING = 2.0**-12
"""The middle, on a logarithmic scale, between the roundoff of float32 and what other inputs change."""
Outcome = Literal["the same numbers", "rounding", "other numbers", "undecided", "raises"]
"""undecided: other numbers, of which no float64 shows whether they round."""


class Program(Record):
    """A program that is made of a model and one prompt, beside the model's own forward."""

    own: Distance | None = None
    """Largest distance of the outputs on the inputs that the program was made of; None: there is no program."""
    others: Distance | None = None
    """The same on other inputs with the same shapes; None: it raised."""
    own_in_float64: Distance | None = None
    """The same as ``own``, of a program that is made in float64; None: not measured, as both are 0, or it raised."""
    others_in_float64: Distance | None = None
    of_inputs: Distance | None = None
    """Largest distance of forward's own outputs between both inputs in float64, if that was measured: what counts as far."""
    refused: str = ""
    """The exception of making it, or of running it."""
    left_out: str = ""
    """Why none was made."""

    @property
    def outcome(self) -> Outcome:
        """What came of it."""
        if self.contradicts("own") or self.contradicts("others"):
            return "other numbers"
        if self.refused:
            return "raises"
        if self.left_out:
            return "undecided"
        if not (self.own or self.others):
            return "the same numbers"
        measured = (self.own_in_float64, self.others_in_float64)
        return "rounding" if None not in measured and self.of_inputs else "undecided"

    def contradicts(self, inputs: Literal["own", "others"]) -> bool:
        """Return True if it computes something else than the model, in float64 too.

        A part of a model may compute in float32 there, so that a remainder that is nearer to the roundoff of float32
        than to what other inputs change is rounding.
        """
        distance: float | None = getattr(self, inputs)
        precise: float | None = getattr(self, f"{inputs}_in_float64")
        if distance is None or precise is None or not self.of_inputs:
            return False
        return stays(distance, precise) and precise > self.of_inputs * _ROUNDING


class ExportsSignal(Answer):
    """The programs that were made of a model; they do not affect the verdict."""

    programs: dict[str, dict[str, Program]] = Field(default_factory=dict)
    """Way, ``torch.export`` or ``torch.jit.trace`` -> prompt -> its program."""


class ProgramDifference(Record):
    """A program that one release makes, and the other does not or otherwise."""

    way: str
    prompt: str
    reference: Program
    candidate: Program


class ExportsOfRow(ComparedOfRow[ExportsSignal, ProgramDifference]):
    """The programs of a row's cells."""


EXPORTS = Key(
    "exports",
    ExportsSignal,
    ExportsOfRow,
    switch="Whether to make programs of the model by torch.export and torch.jit.trace, and to compare them with its forward.",
    hint="do torch.export and torch.jit.trace take the model, and compute the same",
)
