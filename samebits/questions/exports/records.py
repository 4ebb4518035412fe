"""Programs that torch.export and torch.jit.trace make of a model in one environment, and two environments compared.

probes/samebits_probe/questions/exports/ writes :class:`ExportsSignal` without this class; it is the schema.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from samebits.records.question import Answer, Key
from samebits.records.record import Record
from samebits_wire.rounding import stays

Distance = Annotated[float, Field(ge=0)]
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
    refused: str = ""
    """The exception of making it, or of running it."""

    @property
    def outcome(self) -> Outcome:
        """What came of it."""
        if self.contradicts("own") or self.contradicts("others"):
            return "other numbers"
        if self.refused:
            return "raises"
        if not (self.own or self.others):
            return "the same numbers"
        measured = (self.own_in_float64, self.others_in_float64)
        return "undecided" if None in measured else "rounding"

    def contradicts(self, inputs: Literal["own", "others"]) -> bool:
        """Return True if it computes something else than the model, in float64 too."""
        distance: float | None = getattr(self, inputs)
        precise: float | None = getattr(self, f"{inputs}_in_float64")
        return distance is not None and precise is not None and stays(distance, precise)


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


class ExportsReport(Record):
    """The programs of one environment, compared with another's."""

    reference: str
    differences: tuple[ProgramDifference, ...] = ()


class ExportsOfRow(Answer):
    """The programs of a row's cells."""

    stacks: dict[str, ExportsSignal] = Field(default_factory=dict)
    compared: dict[str, ExportsReport] = Field(default_factory=dict)
    """Environment -> what differs from the reference, or from the oldest one; not for that one itself."""


EXPORTS = Key(
    "exports",
    ExportsSignal,
    ExportsOfRow,
    switch="Whether to make programs of the model by torch.export and torch.jit.trace, and to compare them with its forward.",
    hint="do torch.export and torch.jit.trace take the model, and compute the same",
)
