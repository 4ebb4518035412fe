"""What a tokenizer makes of texts and conversations, as a capture has it, and two captures compared.

probes/samebits_probe/questions/texts/ writes :class:`TextsSignal` without this class; it is the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from samebits.records.question import Answer, Key
from samebits.records.record import Record
from samebits.records.report import Row

BLOCK = 64
"""Items, or characters, that one hash of :attr:`Value.blocks` covers."""


class Value(Record):
    """What a call returned or raised: one of ``text``, ``items`` and ``raised``."""

    text: str | None = None
    """The beginning of a text; a lone surrogate is written as an escape."""
    items: tuple[Any, ...] | None = None
    """The beginning of a list: numbers, texts, null, or lists of them."""
    size: int = 0
    """Characters of the whole text, or items of the whole list."""
    blocks: tuple[str, ...] = ()
    """A hash of each block of what follows the beginning."""
    raised: str = ""
    """Type of the exception."""
    message: str = ""
    """First line of its message."""


class Outcomes(Record):
    """What calls returned or raised, by operation and case; an equal value is stored once."""

    operations: dict[str, dict[str, int]]
    """Operation -> case -> index in ``values``."""
    values: tuple[Value, ...]
    left_out: dict[str, str] = Field(default_factory=dict)
    """Operation that was not observed -> why."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Case that is made from the tokenizer itself -> its text."""
    members: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Case that is made of several texts -> their cases."""
    tokens: dict[int, str] = Field(default_factory=dict)
    """Token id -> token, for the ids of the texts."""

    def value(self, operation: str, case: str) -> Value | None:
        """Return what a call returned or raised; None if it was not observed."""
        number = self.operations.get(operation, {}).get(case)
        return None if number is None else self.values[number]


class Parts(Record):
    """The parts of a fast tokenizer as short JSON texts: ``normalizer``, ``model``, …."""

    built: dict[str, str] = Field(default_factory=dict)
    """As this release uses them; empty for a class in Python."""
    declared: dict[str, str] = Field(default_factory=dict)
    """As tokenizer.json has them; empty without this file."""


class Place(Record):
    """The first case of an operation where two sides differ, and the first position in it."""

    case: str
    position: tuple[int, ...]
    """Index in the list, or in the text in characters; for a list of lists, of both. Empty if one
    side raised."""
    span: int = 1
    """Number of positions of which one or more differ: more than one where only hashes are kept."""
    reference: str
    """What the reference has from there on, as a short text."""
    candidate: str


class OperationComparison(Record):
    """One operation on two sides."""

    operation: str
    n_compared: int
    """Cases that both sides observed, whose inputs are the same, and in which one did not raise."""
    n_differ: int
    n_raised: int = 0
    """Cases among those that differ in which only the candidate raised."""
    first: Place | None = None
    """The first difference; one in which both sides returned something, if there is one."""


class TextsReport(Record):
    """What the tokenizer of one stack makes of texts and conversations, compared with another's."""

    reference: str
    """The stack that it is compared with."""
    operations: tuple[OperationComparison, ...]


class TextsSignal(Answer):
    """What the tokenizer of one cell makes of texts and conversations; observed in run a only."""

    parts: Parts | None = None
    """The parts of its backend; None if they could not be read."""
    conversations: Outcomes | None = None
    """What its chat template makes of conversations; None without a template."""
    corpus: Outcomes | None = None
    """What it makes of many texts, and of ids; None if the instrument failed."""

    def tried(self, name: str) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        """Yield nothing: what raises is compared with what returns, operation by operation."""
        yield from ()


class TextsOfRow(Answer):
    """What the tokenizers of a row make of texts and conversations."""

    stacks: dict[str, TextsReport] = Field(default_factory=dict)
    """Stack -> what its tokenizer makes of them, compared with the reference's, or with the oldest
    one's; not for that stack itself."""


TEXTS = Key("texts", TextsSignal, TextsOfRow, always=True)


def reports_of(row: Row) -> Mapping[str, TextsReport]:
    """Return what each stack's tokenizer makes of the texts, by stack."""
    answer = TEXTS.in_row(row.answers)
    return answer.stacks if answer is not None else {}
