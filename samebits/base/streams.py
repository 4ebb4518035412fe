"""Standard streams that are closed or full: a run goes on without them, as its report counts."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


def open_missing() -> None:
    """Open the standard streams that the caller closed, so that no file gets their numbers."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "r" if not descriptor else "w", closefd=False))  # noqa: SIM115


def write(stream: TextIO, text: str) -> None:
    """Write text to a stream; the first failure silences the stream, such as that of a full disk."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())  # what is buffered goes there, too
            os.close(null)
