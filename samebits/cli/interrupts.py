"""Interrupts: what Ctrl-C, SIGTERM and SIGHUP do to a run, whatever it is busy with."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TypeVar

from pydantic_core import PydanticSerializationError

from samebits.base.errors import EXIT_INTERRUPTED, INTERRUPTED
from samebits.text.terminal import PLAIN

T = TypeVar("T")


def run_async(run: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result.

    The result is not that of asyncio's main task: asyncio.run formats the repr of the main task's
    result when it restores the signal handler, and the repr of a report takes seconds.
    """
    results: list[T] = []
    deadline = threading.Timer(_MAX_TO_END, _leave_late)
    deadline.daemon = True

    async def store_result() -> None:
        asyncio.get_running_loop().set_default_executor(_Workers())
        with _started_by_sigint(deadline):
            results.append(await run)

    runner = asyncio.Runner()
    try:
        with _defer_sigint():
            runner.get_loop()
        runner.run(store_result())
    finally:
        runner.close()
        deadline.cancel()
        run.close()  # prevents the warning that a coroutine was never awaited
    return results[0]


class _Workers(ThreadPoolExecutor):
    """The threads of a run. Its end does not wait for them: after an interrupt one may still hash."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the threads as soon as they have finished what they do."""
        super().shutdown(wait=False, cancel_futures=True)


_MAX_TO_END = 4.5
"""Seconds after which an interrupted run is left, whatever it is busy with."""


@contextmanager
def _started_by_sigint(deadline: threading.Timer) -> Iterator[None]:
    """Start the deadline with the first Ctrl-C; the handler of asyncio then cancels the run."""
    previous = signal.getsignal(signal.SIGINT)
    if not callable(previous) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not deadline.is_alive() and not deadline.finished.is_set():
            with suppress(RuntimeError):  # a second signal came before the thread was alive
                deadline.start()
        previous(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _leave_late() -> None:
    PLAIN.say(INTERRUPTED, sys.stderr)
    leave()


def leave() -> NoReturn:
    """End the program at once. The processes of stacks end with it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(EXIT_INTERRUPTED)


@contextmanager
def _defer_sigint() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block: a half-created event loop cannot be closed."""
    previous = signal.getsignal(signal.SIGINT)
    if not callable(previous):
        yield
        return
    pending: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: pending.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    for number in pending[:1]:
        signal.raise_signal(number)


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is a Ctrl-C that a library raised again as an error of its own.

    pydantic does so while it serialises; from ``to_json`` only the text names the interrupt.
    """
    if isinstance(error, PydanticSerializationError) and KeyboardInterrupt.__name__ in str(error):
        return True
    return isinstance(error, KeyboardInterrupt) or any(
        is_interrupt(inner) for inner in (error.__cause__, error.__context__) if inner is not None
    )


_RESEND_DELAY = 0.02
"""Seconds after which a lost Ctrl-C is sent again; finalising an object takes much less."""


@contextmanager
def resend_lost_sigint() -> Iterator[None]:
    """Send a Ctrl-C again that arrived while an object was finalised.

    Python only prints exceptions that are raised during finalisation, so this one would be lost.
    """
    previous = sys.unraisablehook
    timers: list[threading.Timer] = []

    def send(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            previous(lost)
            return
        timer = threading.Timer(_RESEND_DELAY, _interrupt)
        timer.daemon = True
        timers.append(timer)
        timer.start()

    sys.unraisablehook = send
    try:
        yield
    finally:
        sys.unraisablehook = previous
        for timer in timers:
            timer.cancel()


def _interrupt() -> None:
    """Send a Ctrl-C to the main thread, which interrupts a blocking call there."""
    main_thread = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main_thread is not None:
        signal.pthread_kill(main_thread, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def signals_as_sigint() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that child processes are ended first."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # a shell ignores SIGINT for programs in the background
            raise KeyboardInterrupt
        handler(number, frame)

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    previous = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, handler in previous.items():
            signal.signal(getattr(signal, name), handler)
