"""How does a probe put a file on disk: aside first, then renamed, so that no reader sees half.

A capture, and whatever else says what was found, reaches the disk before it gets its name: it is
what a later run goes by. A tensor need not: it is verified by its hash when it is read, and the
flush would cost more than all else that keeping it takes.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def replacing(path: Path, *, lasting: bool) -> Iterator[IO[bytes]]:
    """Give a file to write to, and put it at ``path`` unless an exception comes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any, *, lasting: bool = True) -> None:
    """Write ``value`` closely packed.

    Half a character, as in the name of a file that is no UTF-8, becomes a question mark: no
    reader takes it.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    with replacing(path, lasting=lasting) as file:
        file.write(text.encode("utf-8", "replace"))
