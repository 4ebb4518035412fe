"""The subject of a comparison: which prompt, layer or tensor it is about.

Code reads the fields. People read the name, which is made from the fields here and nowhere else.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from samebits.records.record import Record


class Subject(Record):
    """A prompt, a row of its batch, a layer, an input, or a stored tensor.

    It prints as ``short``, ``padded[1]``, ``short · input_ids``,
    ``short · layer 3 (model.layers.2 → model.layers.1)``, ``lm_head.weight`` or ``a → b``.
    """

    prompt: str = ""
    """'' for a stored tensor, which exists before anything is fed."""
    row: int | None = None
    """Row of a batch, if each row is compared by itself; else None."""
    layer: int | None = None
    """Position of the layer in order of execution; None if it is no layer."""
    tensor: str = ""
    """Name of the layer, the input or the stored tensor in the reference, or in the candidate if
    only that has it."""
    counterpart: str = ""
    """Its name in the candidate, if that is another one."""

    @property
    def prompt_row(self) -> str:
        """The prompt with the row, as captures name it: ``padded[1]``."""
        return self.prompt if self.row is None else f"{self.prompt}[{self.row}]"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layer or tensor: one, or those in reference and candidate."""
        return tuple(filter(None, (self.tensor, self.counterpart)))

    @property
    def place(self) -> str:
        """The layer or tensor in words: ``layer 3 (model.layers.2)``; '' for a whole prompt."""
        names = " → ".join(self.names)
        if self.layer is None:
            return names
        return f"layer {self.layer} ({names})" if names else f"layer {self.layer}"

    def __str__(self) -> str:
        """Return the name that reports show."""
        return " · ".join(filter(None, (self.prompt_row, self.place)))


class Reason(StrEnum):
    """Why a result is as it is, where a rule depends on that; a note says the same in words."""

    DTYPE = "dtype"
    """Both sides hold the same numbers in other dtypes, in parts that were not compared."""
    META_DEVICE = "meta device"
    """A tensor on the meta device has no values."""
    ON_NEITHER_SIDE = "on neither side"
    """Both sides looked for it, and neither has it."""
    STATE = "state"
    """A value that the model left in its modules is shown to make the difference."""
    NOT_REPEATABLE = "not repeatable"
    """Two runs of one cell gave different values."""
    RAISED = "raised"
    """A probe of the user's raised an exception."""
    REGROUPED = "regrouped"
    """An output is one tensor on one side and a list or tuple of tensors on the other."""
    NOT_FINITE = "not finite"
    """One side is not finite where the other is."""


def with_name(fields: Any) -> Any:  # noqa: ANN401  what a validator gets may be anything
    """Return the fields of a record with the ``name`` of its ``subject``."""
    if not isinstance(fields, dict) or "subject" not in fields:
        return fields
    subject = Subject.model_validate(fields["subject"])
    return fields | {"subject": subject, "name": str(subject)}
