"""What stacks write of a model and its tokenizer, compared with what the reference writes."""

from __future__ import annotations

from pydantic import Field

from samebits.records.question import Answer, Key, NoAnswer
from samebits.records.record import Record

TENSORS = "saved tensors"
"""In place of the name of a file: the names of all tensors, whatever their files."""


class Difference(Record):
    """One file, key or tensor that two releases write differently."""

    file: str
    key: str = ""
    """Dotted key of a JSON file, or name of a tensor, numbers as ``*``; '' for the file itself."""
    reference: str
    """Its value as a short text, ``absent`` if the reference does not write it."""
    candidate: str


class WritesReport(Record):
    """What one stack writes otherwise than another."""

    reference: str
    """The stack that it is compared with."""
    differences: tuple[Difference, ...] = ()


class WritesOfRow(Answer):
    """What the stacks of a row write."""

    stacks: dict[str, WritesReport] = Field(default_factory=dict)
    """Stack -> what it writes otherwise than the reference, or than the oldest that wrote; not for that
    stack itself."""


WRITES = Key("writes", NoAnswer, WritesOfRow)
