"""Atomic and sealed writing of files: written under a temporary name, then renamed.

A reader therefore never sees half a file. Captures and other results are flushed to the disk before
they get their name, because a later run reuses them. Tensors are not flushed: their hash is checked
when they are read, and the flush would cost more than the rest of storing them.

Results carry a seal, so that a bit that changed later is noticed: the last key of the file holds
the SHA-256 of all bytes before it. samebits/base/seal.py reads the same format.
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
    """Yield a file to write to, and move it to ``path`` unless an exception is raised.

    If ``lasting``, the content is flushed to the disk first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as compact JSON, for transformers to read.

    An unpaired surrogate, as in a file name that is not UTF-8, becomes a question mark, because
    JSON readers do not accept it.
    """
    with replacing(path, lasting=True) as file:
        file.write(_compact_json(value))


def write_sealed(path: Path, value: dict[str, Any], *, lasting: bool = True) -> None:
    """Write a result as compact JSON with a seal, for samebits to read."""
    with replacing(path, lasting=lasting) as file:
        file.write(sealed(value))


def sealed(value: dict[str, Any]) -> bytes:
    """Return the bytes that :func:`write_sealed` writes."""
    return _with_seal(_compact_json(value)[:-1] + (b"," if value else b""))


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the content of a sealed file.

    Raises:
        ValueError: the seal does not match the content.

    """
    content = path.read_bytes()
    body = content[: -len(_with_seal(b""))]
    if _with_seal(body) != content:
        msg = f"{path.name} is damaged: its seal does not match its content"
        raise ValueError(msg)
    return dict(json.loads(body.rstrip(b",") + b"}"))


def _with_seal(body: bytes) -> bytes:
    return body + b'"seal":"%s"}' % hashlib.sha256(body).hexdigest().encode()


def _compact_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
