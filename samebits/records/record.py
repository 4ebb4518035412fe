"""The base class of all records, which are frozen and strict and have a JSON schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from samebits_wire import seal

RAISED = "raised"
"""Mark of a field, ``Annotated[str, RAISED]``, that holds the exception of a check, '' if it answered;
of a dict: question -> exception."""


_OWN_WORDS = ("raised", "refused")
"""Fields that are named after the exception and not after the check."""


class Record(BaseModel):
    """A frozen value with named fields; unknown fields are rejected, which reveals typos."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="strings",
        defer_build=True,
    )

    def as_json(self) -> Any:  # noqa: ANN401  the keys of a job that it stands for
        """Return it as JSON values."""
        return self.model_dump(mode="json")


R = TypeVar("R", bound=Record)


def read_record(path: Path, kind: type[R]) -> R | None:
    """Return the record in a file; None if it is missing, damaged or of another format."""
    try:
        return kind.model_validate_json(seal.read(path))
    except (OSError, seal.SealError, ValidationError):
        return None


def marked(record: Record, path: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a record, and of those in it, that are marked :data:`RAISED`, by their place.

    A record that says why it was left out tried nothing: without an exception it does not answer either.
    """
    if getattr(record, "left_out", ""):
        return
    for name, field in type(record).model_fields.items():
        value, place = getattr(record, name), f"{path} {name}"
        if RAISED in field.metadata:
            place = path if name in _OWN_WORDS else place
            answers = value if isinstance(value, dict) else {"": value or ""}
            yield from ((f"{place} {question}".strip(), text) for question, text in answers.items())
            continue
        inner = value if isinstance(value, dict) else {"": value}
        if isinstance(value, tuple):
            inner = {_label(entry): entry for entry in value if isinstance(entry, Record)}
        for key, entry in inner.items():
            if isinstance(entry, Record):
                yield from marked(entry, f"{place} {key}".strip())


def _label(record: Record) -> str:
    """Return what tells a record of a list from the others: its first field."""
    return str(getattr(record, next(iter(type(record).model_fields))))
