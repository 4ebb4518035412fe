"""The base class of all records, which are frozen and strict and have a JSON schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from samebits_wire import seal

if TYPE_CHECKING:
    from pathlib import Path


RAISED = "raised"
"""Mark of a field, ``Annotated[str, RAISED]``, that holds the exception of a check, '' if it answered;
of a dict: question -> exception."""


class Record(BaseModel):
    """A frozen value with named fields; unknown fields are rejected, which reveals typos."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="strings",
        use_attribute_docstrings=True,
    )


R = TypeVar("R", bound=Record)


def read_record(path: Path, kind: type[R]) -> R | None:
    """Return the record in a file; None if it is missing, damaged or of another format."""
    try:
        return kind.model_validate_json(seal.read(path))
    except (OSError, seal.SealError, ValidationError):
        return None
