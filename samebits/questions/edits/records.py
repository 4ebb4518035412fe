"""What comes of edits of a loaded model in one environment, and two environments compared.

probes/samebits_probe/questions/edits/ writes :class:`EditsSignal` without this class; it is the schema.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from samebits.records.made import MadeModel
from samebits.records.question import Answer, ComparedOfRow, Key
from samebits.records.record import RAISED, Record

Part = Literal[
    "old rows of input embeddings",
    "old rows of output embeddings",
    "old rows of bias of the head",
    "other parameters",
    "tensors",
    "names",
    "tie",
    "sizes",
    "config",
    "finite",
    "outputs",
    "saved tensors",
    "saved outputs",
]
"""What an edit should leave as it is, or should change with the rest."""


class NewValues(Record):
    """What new values are drawn from: of rows in units of the old rows' spread, of other parameters as they are."""

    old: str = ""
    """Hash of what has got the rows; '' for a parameter that is all new."""
    mean: float
    """Distance of the mean of new rows from that of the old ones; the mean of a parameter."""
    spread: float


class Edit(Record):
    """What comes of one edit."""

    left_out: str = ""
    """Why it was not tried."""
    raised: Annotated[dict[str, str], RAISED] = Field(default_factory=dict)
    """Step -> its exception, '' if there is none; the step '' is the edit, others use the edited model."""
    facts: dict[str, tuple[str, str]] = Field(default_factory=dict)
    """Fact -> what it is before and after; before is '' for one that an edit makes."""
    new: dict[str, NewValues] = Field(default_factory=dict)
    """What gets new values -> these."""
    broken: dict[Part, str] = Field(default_factory=dict)
    """What is not as it should be -> names, sizes or the distance."""


class EditsSignal(Answer):
    """The edits that were tried; they do not affect the verdict."""

    after: dict[str, Edit] = Field(default_factory=dict)
    """Edit, as the call -> what comes of it."""
    asked_of: MadeModel | None = None
    """The made model that answered for a large one; None: the model itself did."""

    def trimmed(self) -> Self:
        """Return what came of the edits without the steps that were tried."""
        after = {name: edit.model_copy(update={"raised": {}}) for name, edit in self.after.items()}
        return self.model_copy(update={"after": after})


class EditDifference(Record):
    """One part of a model that has another result of an edit."""

    edit: str
    what: str
    """The part, the fact, or what has new values."""
    reference: str
    candidate: str
    """What each side has."""


class EditsOfRow(ComparedOfRow[EditsSignal, EditDifference]):
    """The edits of a row's cells."""


EDITS = Key(
    "edits",
    EditsSignal,
    EditsOfRow,
    switch="Whether to edit the loaded model as users do: another vocabulary, other labels, another dtype, a copy.",
    hint="do resize_token_embeddings, copies and other labels keep what they should",
)
