"""Atomic replacement of a file: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_temporary(path: Path, content: str | bytes, *, lasting: bool = True) -> Path:
    """Write ``content`` to a temporary file in the folder of ``path``; the caller renames it.

    With ``lasting`` the content is flushed to the disk, which costs milliseconds. Without it, a
    power cut may leave an empty file under the final name. That is enough for a file that is
    verified when it is read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp's 0600 would hide a report from its readers
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def replace(path: Path, text: str, *, lasting: bool = True) -> None:
    """Replace ``path`` by ``text`` atomically."""
    temporary = write_temporary(path, text, lasting=lasting)
    try:
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
