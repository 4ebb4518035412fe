"""Does something in a process of its own, so that it changes nothing in this one.

What loads, saves and poisons leaves marks: random generators, caches of modules, memory, settings.
A child process that ends afterwards leaves none, and a crash or a hang in it is not one here.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from typing import TYPE_CHECKING, Any

import torch

from probe_failure import without_folders
from probe_processes import end_with

if TYPE_CHECKING:
    from collections.abc import Callable


class NoAnswer(Exception):  # noqa: N818  what could not be observed is a result
    """The child gave no answer; the message says why."""


class Lost(NoAnswer):
    """It took too long or died, which another time it may not."""


def refusal(device: str) -> str:
    """Return why no child can be made here; '' if one can.

    A fork has one thread, and neither a pool of threads nor a device's context lives on in it.
    """
    if not hasattr(os, "fork"):
        return "this platform has no fork"
    if device != "cpu":
        return f"a model on {device} cannot be used in a fork; a variant on the CPU is tried"
    if torch.get_num_threads() > 1:
        return "a fork cannot use several threads"
    return ""


def apart(function: Callable[[], Any], limit: float) -> Any:
    """Return what ``function`` returns in a forked child, as JSON, within ``limit`` seconds.

    Raises:
        NoAnswer: it raised.
        Lost: it died, or took longer.

    """
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        end_with(parent)
        os.close(reader)
        _answer(function, writer)
    os.close(writer)
    text = _read(reader, limit)
    os.close(reader)
    if text is None:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if text is None:
        msg = f"it took more than {limit:g} s"
        raise Lost(msg)
    if status and not text:
        msg = f"it ended with status {status}"
        raise Lost(msg)
    if status:
        raise NoAnswer(text.decode("utf-8", "replace"))
    return json.loads(text)


def _answer(function: Callable[[], Any], writer: int) -> None:
    """Write the answer, or the exception, and end this process whatever happens."""
    code = 1
    # A fork leaves torch's pool of threads to be made anew by whoever asks first, which two loading
    # threads may do at once: "Invalid thread pool!" (pytorch PR #54895). 9 loads of 120 here.
    torch.set_num_threads(torch.get_num_threads())
    try:
        text = json.dumps(function())
        code = 0
    except BaseException as error:  # noqa: BLE001  it goes to the parent as text
        traceback.print_exc()
        text = without_folders(f"{type(error).__name__}: {error}")
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(text.encode())
    finally:
        # no exit handlers: they belong to the parent
        os._exit(code)


def _read(reader: int, limit: float) -> bytes | None:
    """Return all that comes until the other end is closed; None if that takes too long."""
    end = time.monotonic() + limit
    chunks: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return None
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
