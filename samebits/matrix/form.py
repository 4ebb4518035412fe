"""The base class of the mappings of matrix.yaml."""

from __future__ import annotations

from pydantic import field_validator

from samebits.matrix.values import mistake
from samebits.records.record import Record


class Form(Record):
    """A mapping of matrix.yaml. A key may be left out, but it may not be without a value."""

    @field_validator("*", mode="before")
    @classmethod
    def _has_a_value(cls, value: object) -> object:
        if value is None:
            raise mistake("the value is missing: write one, or remove the key")
        return value
