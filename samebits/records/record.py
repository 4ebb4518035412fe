"""What every record that goes to disk has in common: frozen, strict, and with a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from samebits.base import seal

if TYPE_CHECKING:
    from pathlib import Path


class Record(BaseModel):
    """A frozen value with named fields; unknown fields are refused, so a typo cannot hide."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="strings",
        use_attribute_docstrings=True,
    )


R = TypeVar("R", bound=Record)


def read_record(path: Path, kind: type[R]) -> R | None:
    """Return the record that a file holds; None if it is missing, not whole or of another format."""
    try:
        if not path.is_file():  # a pipe would never end
            return None
        return kind.model_validate_json(seal.read(path))
    except (OSError, seal.SealError, ValidationError):
        return None
