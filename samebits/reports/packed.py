"""report.json, plain or compressed: report.json.xz is for reports that are committed."""

from __future__ import annotations

import lzma
from pathlib import Path

NAME = "report.json"
COMPRESSED = "report.json.xz"
_SUFFIX = ".xz"


class PackedError(ValueError):
    """A compressed file is damaged."""


def content(path: Path) -> bytes:
    """Return the text of a report.json.

    The compressed file is read if ``path`` names it, or if it is the only one of the two that exists.

    Raises:
        OSError: neither can be read.
        PackedError: the compressed file is damaged.

    """
    packed = path if path.suffix == _SUFFIX else path.with_name(path.name + _SUFFIX)
    if packed != path and (path.exists() or not packed.exists()):
        return path.read_bytes()
    try:
        return lzma.decompress(packed.read_bytes())
    except lzma.LZMAError as error:
        raise PackedError(str(error)) from error


def compressed(text: str) -> bytes:
    """Return the compressed text; equal texts give equal bytes."""
    return lzma.compress(text.encode())
