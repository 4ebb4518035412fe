"""How does a probe put a file on disk: aside first, then renamed, so that no reader sees half.

A capture, and whatever else says what was found, reaches the disk before it gets its name: it is
what a later run goes by. A tensor need not: it is verified by its hash when it is read, and the
flush would cost more than all else that keeping it takes.

What says what was found bears a seal, so that a bit that is another later on is noticed: the last
key of the file holds the SHA-256 of every byte before it, as samebits/base/seal.py reads it.
"""

from __future__ import annotations

import hashlib
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


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` closely packed, as transformers is to read it.

    Half a character, as in the name of a file that is no UTF-8, becomes a question mark: no
    reader takes it.
    """
    with replacing(path, lasting=True) as file:
        file.write(_packed(value))


def write_sealed(path: Path, value: dict[str, Any], *, lasting: bool = True) -> None:
    """Write what was found, as samebits is to read it: the same with a seal."""
    with replacing(path, lasting=lasting) as file:
        file.write(sealed(value))


def sealed(value: dict[str, Any]) -> bytes:
    """Return what is written."""
    return _with_seal(_packed(value)[:-1] + (b"," if value else b""))


def read_sealed(path: Path) -> dict[str, Any]:
    """Return what was written.

    Raises:
        ValueError: a bit of it is another.

    """
    content = path.read_bytes()
    body = content[: -len(_with_seal(b""))]
    if _with_seal(body) != content:
        msg = f"{path.name} is not what was written: its seal is that of other bytes"
        raise ValueError(msg)
    return dict(json.loads(body.rstrip(b",") + b"}"))


def _with_seal(body: bytes) -> bytes:
    return body + b'"seal":"%s"}' % hashlib.sha256(body).hexdigest().encode()


def _packed(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
