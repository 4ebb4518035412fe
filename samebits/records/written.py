"""What a release writes when a model or its tokenizer is saved."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from samebits.records.record import RAISED, Record


class WrittenFile(Record):
    """One file of a save."""

    digest: str = ""
    """Hash of its bytes, but for the release that it names; '' for a file of tensors."""
    keys: dict[str, str] = Field(default_factory=dict)
    """Dotted key of a JSON file -> its value as a short JSON text."""


class Written(Record):
    """The files of a save, and what they lose."""

    files: dict[str, WrittenFile] = Field(default_factory=dict)
    tensors: dict[str, str] | None = None
    """Name of a saved tensor -> its dtype and shape; None: not observed, and for a tokenizer."""
    lost: dict[str, dict[str, tuple[str, str]]] = Field(default_factory=dict)
    """File -> dotted key that the checkpoint's file states -> its value there, and the value that this
    release reads from what it wrote, ``absent`` if there is none."""
    raised: Annotated[str, RAISED] = ""
    """The exception of the save, or of reading its files again."""
