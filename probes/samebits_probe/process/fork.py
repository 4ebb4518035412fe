"""Functions that run in a forked child, so that they change nothing in this process.

Loading, saving and poisoning memory change random generators, caches of modules, memory and
settings. A child that ends afterwards takes these changes with it, and a crash or a hang of the
child does not end this process.

A child can also be forked first and run later (:class:`ForkedChild`). It then sees everything as it was
at the fork, whatever this process has changed since. While it waits it costs only the pages that
this process writes to; the kernel shares all others.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import traceback
from collections.abc import Callable
from typing import Any

from samebits_probe.process import consent, progress, threads
from samebits_probe.process.calls import CALLS
from samebits_probe.process.children import die_with_parent
from samebits_probe.process.failure import in_words
from samebits_probe.process.files import StoreFault


class NoAnswer(Exception):  # noqa: N818  what could not be observed is a result
    """The child returned no result; the message is the reason."""


class Lost(NoAnswer):
    """The child took too long or died; another attempt may succeed."""


def refusal(device: str) -> str:
    """Return why no child can be forked; '' if one can.

    A device's context does not work in a forked child, and a thread pool only if it is given up first.
    """
    if device != "cpu":
        return f"a model on {device} cannot be used in a fork; a variant on the CPU is tried"
    if not threads.release():
        return "a fork cannot use several threads with this OpenMP; threads: 1 in matrix.yaml can"
    return ""


class ForkedChild:
    """A forked child that waits to run a function on the state of this process at the fork."""

    def __init__(self, function: Callable[[str], Any]) -> None:
        self._reader, writer = os.pipe()
        start_reader, self._start = os.pipe()
        parent = os.getpid()
        threads.release()
        self._pid = os.fork()
        if not self._pid:
            die_with_parent(parent)
            os.close(self._reader)
            os.close(self._start)
            _wait_and_answer(function, start_reader, writer)
        os.close(writer)
        os.close(start_reader)

    def answer(self, argument: str = "") -> Any:
        """Return the function's result for one line of text, passed back as JSON.

        It may take as long as it makes progress (process.progress).
        """
        with contextlib.suppress(BrokenPipeError):  # it was killed; its exit status shows that
            os.write(self._start, f"{argument}\n".encode())
        text, stalled = _read(self._reader)
        if stalled:
            os.kill(self._pid, signal.SIGKILL)
        status = self._close()
        progress.resume()
        if stalled:
            raise Lost(stalled)
        if status and not text:
            raise Lost(_death_message(status))
        if status:
            lost_message = text.decode("utf-8", "replace")
            # a child of the child that died is no exception of its task
            for kind in (StoreFault, Lost):
                if lost_message.startswith(f"{kind.__name__}: "):
                    raise kind(lost_message.partition(": ")[2])
            raise NoAnswer(lost_message)
        message = json.loads(text)
        CALLS.add_table(message["entered"])
        return message["answer"]

    def forget(self) -> None:
        """Kill the child without running the function."""
        os.kill(self._pid, signal.SIGKILL)
        self._close()

    def _close(self) -> int:
        status = os.waitpid(self._pid, 0)[1]
        os.close(self._reader)
        os.close(self._start)
        return status


def run_in_fork(function: Callable[[], Any]) -> Any:
    """Return the result of ``function`` in a forked child, passed back as JSON.

    Raises:
        NoAnswer: the function raised.
        Lost: the child died, or made no progress.

    """
    return ForkedChild(lambda _: function()).answer()


def _death_message(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        cause = ", most likely because memory ran out" if number == signal.SIGKILL else ""
        return f"it was killed by signal {number}{cause}"
    return f"it ended with exit code {os.WEXITSTATUS(status)}"


def _wait_and_answer(function: Callable[[str], Any], start_reader: int, writer: int) -> None:
    argument = b""
    try:
        while not argument.endswith(b"\n"):
            if not (chunk := os.read(start_reader, 1 << 12)):
                os._exit(0)  # the parent closed the pipe and needs no result
            argument += chunk
        os.close(start_reader)
    except BaseException:  # noqa: BLE001  this process ends here, whatever happened
        os._exit(1)
    progress.enter_child()
    _answer(lambda: function(argument.decode()[:-1]), writer)


def _answer(function: Callable[[], Any], writer: int) -> None:
    """Write the result or the exception, and end this process in every case."""
    code = 1
    threads.recreate_pool()
    try:
        with consent.kept_in_view():
            text = json.dumps({"answer": function(), "entered": CALLS.table()})
        code = 0
    except BaseException as error:  # noqa: BLE001  it goes to the parent as text
        traceback.print_exc()
        text = in_words(error)
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(text.encode())
    finally:
        # no exit handlers: they belong to the parent
        os._exit(code)


def _read(reader: int) -> tuple[bytes, str]:
    """Return all bytes until the other end is closed, and '' or why waiting was given up."""
    watcher = progress.Watcher(progress.board(), progress.depth() + 1)
    chunks: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], progress.LOOK)
        if ready:
            if not (chunk := os.read(reader, 1 << 16)):
                return b"".join(chunks), ""
            chunks.append(chunk)
        elif watcher.is_overdue():
            parts = f"{watcher.stalled()} in {watcher.place()}", watcher.meanwhile()
            return b"", "; ".join(filter(None, parts))
