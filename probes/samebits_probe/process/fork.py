"""Does something in a process of its own, so that it changes nothing in this one.

What loads, saves and poisons leaves marks: random generators, caches of modules, memory, settings.
A child process that ends afterwards leaves none, and a crash or a hang in it is not one here.

It can also be made first and asked later (:class:`Apart`): it then sees everything as it was when it
was made, whatever this process has done to it since. Until it is asked it costs what this process
changes meanwhile, page by page, as the kernel shares the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import traceback
from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.process import progress
from samebits_probe.process.children import end_with
from samebits_probe.process.failure import without_folders

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


class Apart:
    """A forked child that waits until it is asked; it does so with what there is now."""

    def __init__(self, function: Callable[[str], Any]) -> None:
        self._reader, writer = os.pipe()
        waiting, self._start = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            end_with(parent)
            os.close(self._reader)
            os.close(self._start)
            _wait_and_answer(function, waiting, writer)
        os.close(writer)
        os.close(waiting)

    def answer(self, said: str = "") -> Any:
        """Return what the function returns for one line of text, as JSON.

        It may take as long as it makes progress (process.progress).

        Raises:
            NoAnswer: it raised.
            Lost: it died, or made no progress.

        """
        with contextlib.suppress(BrokenPipeError):  # it was killed meanwhile, as its status says
            os.write(self._start, f"{said}\n".encode())
        text, stalled = _read(self._reader)
        if stalled:
            os.kill(self._pid, signal.SIGKILL)
        status = self._close()
        progress.resume()
        if stalled:
            raise Lost(stalled)
        if status and not text:
            raise Lost(_death(status))
        if status:
            raise NoAnswer(text.decode("utf-8", "replace"))
        return json.loads(text)

    def forget(self) -> None:
        """End it without an answer."""
        os.kill(self._pid, signal.SIGKILL)
        self._close()

    def _close(self) -> int:
        status = os.waitpid(self._pid, 0)[1]
        os.close(self._reader)
        os.close(self._start)
        return status


def apart(function: Callable[[], Any]) -> Any:
    """Return what ``function`` returns in a forked child, as JSON.

    Raises:
        NoAnswer: it raised.
        Lost: it died, or made no progress.

    """
    return Apart(lambda _: function()).answer()


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        why = ", most likely because memory ran out" if number == signal.SIGKILL else ""
        return f"it was killed by signal {number}{why}"
    return f"it ended with exit code {os.WEXITSTATUS(status)}"


def _wait_and_answer(function: Callable[[str], Any], waiting: int, writer: int) -> None:
    said = b""
    try:
        while not said.endswith(b"\n"):
            chunk = os.read(waiting, 1 << 12)
            if not chunk:
                os._exit(0)  # nothing will be asked
            said += chunk
        os.close(waiting)
    except BaseException:  # noqa: BLE001  this process ends here, whatever happened
        os._exit(1)
    progress.one_deeper()
    _answer(lambda: function(said.decode()[:-1]), writer)


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


def _read(reader: int) -> tuple[bytes, str]:
    """Return all that comes until the other end is closed, or why that is not waited for."""
    watcher = progress.Watcher(progress.board(), progress.depth() + 1)
    chunks: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], progress.LOOK)
        if ready:
            chunk = os.read(reader, 1 << 16)
            if not chunk:
                return b"".join(chunks), ""
            chunks.append(chunk)
        elif watcher.is_overdue():
            said = f"{watcher.stalled()} in {watcher.place()}", watcher.meanwhile()
            return b"", "; ".join(filter(None, said))
