"""The command line: ``matrix`` runs cells and writes the report, ``probe`` only runs them.

Exit codes: 0, every comparison is identical, rounding, absent or expected; 1, something fails;
2, a mistake in matrix.yaml or on the command line; 3, nothing fails, but something was not finished
or not observed.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import shlex
import signal
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from samebits.base.errors import MachineError, SamebitsError
from samebits.base.filestate import Ledger
from samebits.base.redaction import Redaction
from samebits.matrix.plan import Selection, shown_path
from samebits.pipeline.run import DEFAULT_MATRIX, WORK, Order, run_matrix
from samebits.reports.write import write
from samebits.storage.prune import prune
from samebits.storage.receipt import Answer, remember
from samebits.terminal.progress import choose
from samebits.terminal.summary import summary
from samebits.text.terminal import NOBODY, Spoken

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence
    from types import FrameType

    from samebits.capsules.choosing import Scope

T = TypeVar("T")

_EXIT_INTERRUPTED = 130
_LATEST = Path("reports") / "latest"


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[int, list[str]]:
    """Run a command; return the exit code and the lines to print.

    Raises:
        SamebitsError: a mistake of the user, with its exit code.

    """
    spoken = Spoken(environ)
    options = _parsed(arguments, spoken)
    order, ledger = _order(options), Ledger()
    reports = _report_folder(options)
    if reports is not None:
        _check_writable(reports)
    progress = partial(choose, spoken=spoken)
    report, files = _run_async(run_matrix(order, environ, progress, ledger))
    redaction = Redaction(environ)
    if reports is None:
        failed = [redaction.text(stack.failure) for stack in report.stacks if stack.failure]
        return (1, failed) if failed else (0, [])
    writing = progress(0)
    writing.begin("writing the report", 0, "")
    try:
        report = redaction.record(report)
        files = {path: redaction.file(path, content) for path, content in files.items()}
        written = write(report, reports, files)
    finally:
        writing.end("writing the report")
        writing.close()
    printed = Answer(report.exit_code, list(map(spoken.text, summary(report, written.markdown))))
    if not order.fresh and not order.upgrade:
        set_options = [name for name, value in vars(options).items() if value]
        matrix = order.matrix, report.matrix_digest
        remember(
            arguments,
            environ,
            set_options,
            matrix,
            ledger,
            written.digests,
            report.started,
            printed,
        )
    prune(order.matrix.resolve().parent / WORK, ledger.files.keys(), time.time())
    return printed.code, printed.lines


def _report_folder(options: argparse.Namespace) -> Path | None:
    """Return the folder of the report; None for a command without a report."""
    if options.command == "probe":
        return None
    default: Path = options.matrix.parent / _LATEST
    return options.reports or default


def _check_writable(folder: Path) -> None:
    """Fail before the run, which takes minutes, if the report cannot be written. Raises OSError."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(existing))


def _run_async(run: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result.

    The result is not that of asyncio's main task: asyncio.run formats the repr of the main task's
    result when it restores the signal handler, and the repr of a report takes seconds.
    """
    results: list[T] = []

    async def store_result() -> None:
        results.append(await run)

    runner = asyncio.Runner()
    try:
        with _defer_sigint():
            runner.get_loop()
        runner.run(store_result())
    finally:
        runner.close()
        run.close()  # prevents the warning that a coroutine was never awaited
    return results[0]


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


def _parsed(arguments: Sequence[str], spoken: Spoken) -> argparse.Namespace:
    """Return the options; an unknown option is reported with the usage of the command."""
    parser, commands = _parser(spoken)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        commands[options.command].error(f"no such option or argument: {' '.join(unknown)}")
    return options


def _order(options: argparse.Namespace) -> Order:
    selection = Selection.parse(
        models=options.models,
        stacks=options.stacks,
        dtypes=options.dtypes,
        attention=options.attention,
        devices=options.devices,
    )
    return Order(
        matrix=options.matrix,
        selection=selection,
        fresh=options.fresh,
        upgrade=options.upgrade,
        sweep=options.sweep,
        releases=options.releases,
        causes=options.causes,
        capsules=_scope(options),
        reports=_report_folder(options),
        jobs=options.jobs,
        command=_nox_command(options),
    )


def _scope(options: argparse.Namespace) -> Scope:
    if options.command == "probe" or options.repro is False:
        return "none"
    if options.repro:
        return "all"
    return "none" if options.releases else "failing"


def _nox_command(options: argparse.Namespace) -> str:
    """Return the nox command for a run with the same options."""
    words = ["nox", "-s", "matrix"]
    option_words = [
        word
        for name in ("models", "stacks", "dtypes", "attention", "devices")
        if (value := getattr(options, name))
        for word in (f"--{name}", value)
    ]
    option_words += [f"--{n}" for n in ("releases", "sweep", "causes") if getattr(options, n)]
    if getattr(options, "repro", None) is not None:
        option_words.append("--repro" if options.repro else "--no-repro")
    if options.matrix != DEFAULT_MATRIX:
        option_words += ["--matrix", shown_path(options.matrix)]
    return shlex.join([*words, "--", *option_words] if option_words else words)


class _Parser(argparse.ArgumentParser):
    """A parser whose error messages have secrets redacted."""

    spoken = NOBODY

    def error(self, message: str) -> NoReturn:
        super().error(self.spoken.text(message))


def _parser(spoken: Spoken) -> tuple[_Parser, dict[str, _Parser]]:
    """Return the main parser, and the parsers of its commands by name."""
    parser = _Parser(
        prog="samebits",
        description="Does a model compute the same bits under every transformers release?",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    matrix = commands.add_parser(
        "matrix",
        help="run the matrix and write the report",
        description=_MATRIX_HELP,
        prog="nox -s matrix --",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    probe = commands.add_parser(
        "probe",
        help="build stacks and run the probes, no report",
        prog="nox -s 'probe(4.48)' --",
    )
    for command in (matrix, probe):
        _add_options(command)
    for command in (parser, matrix, probe):
        command.spoken = spoken
    matrix.add_argument(
        "--reports", type=_path, metavar="DIR", help="folder of the report (reports/latest)"
    )
    matrix.add_argument(
        "--repro",
        action=argparse.BooleanOptionalAction,
        help="make a folder that runs alone for every difference (or none; default: for those "
        "that make the run fail, and with --releases none)",
    )
    return parser, {"matrix": matrix, "probe": probe}


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--matrix", type=_path, default=DEFAULT_MATRIX, metavar="FILE", help="default: matrix.yaml")
    add("--models", default="", metavar="NAMES", help="names or patterns, such as 'llama*,gpt2'")
    add("--stacks", default="", metavar="IDS", help="such as 4.48,5.x")
    add("--dtypes", default="", metavar="NAMES", help="such as float32,bfloat16")
    add("--attention", default="", metavar="NAMES", help="such as eager,sdpa")
    add("--devices", default="", metavar="NAMES", help="such as cpu,cuda")
    add("--fresh", action="store_true", help="do not use captures of earlier runs")
    add("--upgrade", action="store_true", help="resolve the stacks again, to their newest releases")
    add("--releases", action="store_true", help="run every release between the stacks, too")
    add("--sweep", action="store_true", help="try invariants at every length residue and split")
    add("--causes", action="store_true", help="trace rounding and expected differences, too")
    add("--jobs", type=_positive, metavar="N", help="cells at a time (one for each core)")


def _path(text: str) -> Path:
    """Return a path with ``~`` expanded: commands in a report contain it in quotes."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  Path.expanduser raises without a home


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a number of 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


_MATRIX_HELP = """\
Run every model of matrix.yaml on every stack, compare, and write the report.

Filters take names or shell patterns, separated by commas; one that matches nothing is an error.
The report replaces that of the run before in the same folder; the lines "To reproduce" of a report
name a folder of their own, reports/reproduce/MODEL@STACK.
Exit code: 0 all comparisons identical, rounding, absent or expected; 1 something fails;
2 a mistake in matrix.yaml or on the command line; 3 incomplete: nothing fails, and something was
not finished or not observed.
"""


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run, print, and return the exit code; a user's mistake is printed without a traceback."""
    spoken = Spoken(environ)
    try:
        with _signals_as_sigint(), _resend_lost_sigint():
            code, lines = run(arguments, environ)
    except KeyboardInterrupt:
        spoken.say("interrupted; the same command continues the run", sys.stderr)
        return _EXIT_INTERRUPTED
    except Exception as error:
        user_error = _user_error(error)
        if user_error is None:
            raise
        spoken.say(str(user_error), sys.stderr)
        return user_error.exit_code
    for line in lines:
        spoken.say(line, sys.stdout)
    return code


def program(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Like :func:`main`, but print the traceback of an internal error with secrets redacted."""
    try:
        return main(arguments, environ)
    except Exception:  # noqa: BLE001  it is printed, and the program ends
        Spoken(environ).say(traceback.format_exc().rstrip(), sys.stderr)
        return 1


def _user_error(error: BaseException) -> SamebitsError | None:
    """Return the error to show to the user, the first of a group; None for an internal error."""
    if isinstance(error, SamebitsError):
        return error
    if isinstance(error, BaseExceptionGroup):
        user_errors = [_user_error(inner) for inner in error.exceptions]
        return user_errors[0] if all(user_errors) else None
    return MachineError(error) if isinstance(error, OSError) else None


_RESEND_DELAY = 0.02
"""Seconds after which a lost Ctrl-C is sent again; finalising an object takes much less."""


@contextmanager
def _resend_lost_sigint() -> Iterator[None]:
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
def _signals_as_sigint() -> Iterator[None]:
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
