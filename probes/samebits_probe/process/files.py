"""Atomic and sealed writing of results, and what a damaged one raises.

Captures and other results are flushed to the disk before they get their name, because a later run
reuses them. Tensors are not flushed: their hash is checked when they are read, and the flush would
cost more than the rest of storing them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from samebits_wire import seal
from samebits_wire.atomic import replace


class StoreFault(BaseException):
    """A kept file is missing or damaged: a fault of the store, never a result of the model.

    It is no Exception, so that no phase records it. It ends the job, and the host makes the file
    again and runs the job once more (samebits/stacks/process.py knows it by its name).
    """


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as compact JSON, for transformers to read.

    An unpaired surrogate, as in a file name that is not UTF-8, becomes a question mark, because
    JSON readers do not accept it.
    """
    replace(path, _compact_json(value))


def write_sealed(path: Path, value: dict[str, Any], *, lasting: bool = True) -> None:
    """Write a result as compact JSON with a seal, for samebits to read."""
    replace(path, sealed(value), lasting=lasting)


def sealed(value: dict[str, Any]) -> bytes:
    """Return the bytes that :func:`write_sealed` writes."""
    return seal.sealed_bytes(_compact_json(value))


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the content of a sealed file."""
    try:
        return dict(json.loads(seal.read(path)))
    except OSError as error:
        raise StoreFault(f"{path.name} cannot be read: {error.strerror or error}") from error
    except seal.SealError as error:
        raise StoreFault(f"{path.name} is damaged: its seal does not match its content") from error


def _compact_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
