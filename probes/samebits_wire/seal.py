"""Checksums inside JSON files ("seals"), by which a reader notices any damaged bit.

The last key of such a file, ``seal``, holds the SHA-256 of every byte before that key. The file is
still JSON that any parser reads, and it is verified in one pass over its bytes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from samebits_wire.atomic import read_whole

_BEGIN, _END = b'"seal":"', b'"}'
_LENGTH = len(_BEGIN) + 64 + len(_END)
_COMMENT = "# seal: "


class SealError(ValueError):
    """A file has no seal, or its seal does not match its content."""


def sealed(text: str) -> str:
    """Return the text of a JSON object with its seal added as the last key."""
    # a lone surrogate, as in a file name that is not UTF-8, raises UnicodeEncodeError here
    return sealed_bytes(text.encode()).decode()


def sealed_bytes(content: bytes) -> bytes:
    """Return a JSON object with its seal added as the last key."""
    body = content.rstrip()
    if not body.startswith(b"{") or not body.endswith(b"}"):
        raise ValueError("only an object can bear a seal")
    body = body[:-1].rstrip()
    body += b"" if body == b"{" else b","
    return body + _BEGIN + hashlib.sha256(body).hexdigest().encode() + _END


def opened(content: bytes) -> bytes:
    """Return the JSON of a file without its seal."""
    body, seal = memoryview(content)[:-_LENGTH], content[-_LENGTH:]  # no copy: traces are large
    if not seal.startswith(_BEGIN) or not seal.endswith(_END) or not body:
        raise SealError("it bears no seal")
    if hashlib.sha256(body).hexdigest().encode() != seal[len(_BEGIN) : -len(_END)]:
        raise SealError("its seal is that of other bytes")
    # without the comma before the seal, which an empty object does not have
    return b"".join((body[:-1] if len(body) > 1 else body, b"}"))


def read(path: Path) -> bytes:
    """Return the JSON of a sealed file, without its seal.

    Raises:
        OSError: the file cannot be read.
        SealError: the seal is missing or does not match.

    """
    return opened(read_whole(path))


def sealed_lines(text: str) -> str:
    """Return lines of text with a seal added as the last one, in a ``#`` comment."""
    return f"{text}{_COMMENT}{hashlib.sha256(text.encode()).hexdigest()}\n"


def opened_lines(text: str) -> str:
    """Return lines of text without their seal."""
    body, comment, _ = text.rpartition(_COMMENT)
    if not comment or sealed_lines(body) != text:
        raise SealError("its seal is that of other bytes")
    return body
