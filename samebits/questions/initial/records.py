"""How the first weights of new models are drawn in one environment.

probes/samebits_probe/questions/initial/ writes :class:`InitialSignal` without this class; it is the schema.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from samebits.records.question import Answer, Key, StacksOfRow
from samebits.records.record import RAISED, Record

Kind = Literal["drawn", "constant", "scale", "centre", "padding"]
"""drawn: one side draws what the other one sets. constant: both set it, to other values. scale, centre: both draw it, with
another standard deviation or around another mean. padding: rows of zeros on one side alone."""


class Writer(Record):
    """The code that wrote a tensor last."""

    function: str
    place: str
    """The file in its package, and the line."""
    code: str


class FirstWeights(Record):
    """The values of a parameter or buffer in new models, or of those whose names differ in a layer's number."""

    n_tensors: int = 1
    """Tensors of that name in one model."""
    is_fixed: bool = False
    """Whether each seed gives the same bytes: a constant, or a table."""
    repeats: bool = True
    """Whether one seed gives the same bytes twice, the second time with other bytes in unwritten memory."""
    n_unwritten: int = 0
    """Elements that held the fill of unwritten memory both times."""
    is_finite: bool = True
    zero_rows: int = 0
    """Rows of zeros in tables that have others."""
    writer: Writer | None = None
    n_values: int = 0
    """Values of which no two are equal, of all models."""
    mean: float = 0.0
    std: float = 0.0
    least: float = 0.0
    largest: float = 0.0
    kurtosis: float = 0.0
    """1.8 for a uniform distribution, 3 for a normal one; 0 for a constant."""


class NewWeights(Record):
    """New models of one class, made in one way."""

    model_class: str = ""
    left_out: str = ""
    """Why none was made: a package is missing."""
    raised: Annotated[str, RAISED] = ""
    tensors: dict[str, FirstWeights] = Field(default_factory=dict)
    """Name, with * in place of the number of a layer -> its values; of a head those alone that no file has."""


class InitialSignal(Answer):
    """The first weights; they do not affect the verdict."""

    scales: dict[str, float] = Field(default_factory=dict)
    """Field of the config, such as initializer_range -> the standard deviation that it states."""
    made: dict[str, NewWeights] = Field(default_factory=dict)
    """``from_config``, or a call of ``from_pretrained`` by another class -> what it makes. On the meta device: those
    tensors alone that stay unwritten."""

    def trimmed(self) -> Self:
        """Return the models without their tensors, of which findings have those that matter."""
        made = {how: new.model_copy(update={"tensors": {}}) for how, new in self.made.items()}
        return self.model_copy(update={"made": made})


class InitialOfRow(StacksOfRow[InitialSignal]):
    """The first weights of a row's cells."""


INITIAL = Key(
    "initial",
    InitialSignal,
    InitialOfRow,
    word="first_weights",
    switch="Whether to make new models of the config and new heads on the checkpoint, and to compare how their first weights are drawn.",
    hint="do new models start with weights of the same scale",
)
