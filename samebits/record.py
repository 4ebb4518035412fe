"""What every record that goes to disk has in common: frozen, strict, and with a schema."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen value with named fields; unknown fields are refused, so a typo cannot hide."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="strings",
        use_attribute_docstrings=True,
    )
