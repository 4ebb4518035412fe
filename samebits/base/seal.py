"""Is a file what was written, to the last bit?

A file of JSON says so itself: its last key, ``seal``, holds the SHA-256 of every byte before that
key. It stays JSON that any reader takes, it is checked in one pass over the bytes, and no bit of it
can be another without being noticed. probes/samebits_probe/process/files.py writes the same.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KEY = "seal"
_BEGIN, _END = b'"seal":"', b'"}'
_LENGTH = len(_BEGIN) + 64 + len(_END)
_COMMENT = "# seal: "


class SealError(ValueError):
    """A file bears no seal, or the seal of something else."""


def sealed(text: str) -> str:
    """Return an object of JSON with its seal as its last key."""
    body = text.rstrip()
    if not body.startswith("{") or not body.endswith("}"):
        msg = "only an object can bear a seal"
        raise ValueError(msg)
    body = body[:-1].rstrip()
    body += "" if body == "{" else ","
    # half a character, as in the name of a file that is no UTF-8, is refused by who writes it
    return f'{body}"{KEY}":"{hashlib.sha256(body.encode()).hexdigest()}"}}'


def opened(content: bytes) -> bytes:
    """Return the JSON of a file without its seal.

    Raises:
        SealError: it is not what was written.

    """
    body, seal = memoryview(content)[:-_LENGTH], content[-_LENGTH:]  # traces are large
    if not seal.startswith(_BEGIN) or not seal.endswith(_END) or not body:
        msg = "it bears no seal"
        raise SealError(msg)
    if hashlib.sha256(body).hexdigest().encode() != seal[len(_BEGIN) : -len(_END)]:
        msg = "its seal is that of other bytes"
        raise SealError(msg)
    return b"".join((body[:-1] if len(body) > 1 else body, b"}"))  # its comma, or it is empty


def read(path: Path) -> bytes:
    """Return the JSON of a file that bears a seal.

    Raises:
        OSError: it cannot be read.
        SealError: it is not what was written.

    """
    return opened(path.read_bytes())


def sealed_lines(text: str) -> str:
    """Return lines of which ``#`` begins a comment, with their seal as the last one."""
    return f"{text}{_COMMENT}{hashlib.sha256(text.encode()).hexdigest()}\n"


def opened_lines(text: str) -> str:
    """Return them without it.

    Raises:
        SealError: they are not what was written.

    """
    body, found, _ = text.rpartition(_COMMENT)
    if not found or sealed_lines(body) != text:
        msg = "its seal is that of other bytes"
        raise SealError(msg)
    return body
