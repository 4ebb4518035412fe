"""How is a file replaced so that a reader sees the old one or the new one and nothing between?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_aside(path: Path, content: str | bytes, *, lasting: bool = True) -> Path:
    """Write ``content`` to a new file beside ``path`` and return that file; rename it into place.

    ``lasting`` has it reach the disk first, which costs milliseconds: without, a power cut may
    leave an empty file under the name, which is enough for what is checked when it is read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        aside.chmod(0o644)  # mkstemp's 0600 would hide a report from its readers
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return aside


def replace(path: Path, text: str, *, lasting: bool = True) -> None:
    """Put ``text`` at ``path``, whole or not at all."""
    aside = write_aside(path, text, lasting=lasting)
    try:
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
