"""The command line: ``matrix`` runs and reports, ``probe`` runs only.

Exit codes: 0, every comparison is identical, rounding, absent or expected; 1, something fails;
2, a mistake in matrix.yaml or on the command line; 3, nothing fails, and something was not finished
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

INTERRUPTED = 130
_LATEST = Path("reports") / "latest"


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[int, list[str]]:
    """Do what the command line says; return the exit code and the lines to print.

    Raises:
        SamebitsError: a mistake of the user, with its own exit code.

    """
    spoken = Spoken(environ)
    options = _parsed(arguments, spoken)
    order, ledger = _order(options), Ledger()
    reports = _reports(options)
    if reports is not None:
        _check_writable(reports)
    progress = partial(choose, spoken=spoken)
    report, beside = _run_to_the_end(run_matrix(order, environ, progress, ledger))
    redaction = Redaction(environ)
    if reports is None:
        failed = [redaction.text(stack.failure) for stack in report.stacks if stack.failure]
        return (1, failed) if failed else (0, [])
    writing = progress(0)
    writing.begin("writing the report", 0, "")
    try:
        report = redaction.record(report)
        beside = {path: redaction.file(path, content) for path, content in beside.items()}
        written = write(report, reports, beside)
    finally:
        writing.end("writing the report")
        writing.close()
    said = Answer(report.exit_code, list(map(spoken.text, summary(report, written.markdown))))
    if not order.fresh and not order.upgrade:
        given = [name for name, value in vars(options).items() if value]
        matrix = order.matrix, report.matrix_digest
        remember(arguments, environ, given, matrix, ledger, written.digests, report.started, said)
    prune(order.matrix.resolve().parent / WORK, ledger.files.keys(), time.time())
    return said.code, said.lines


def _reports(options: argparse.Namespace) -> Path | None:
    """Return the folder of the report; None if there will be none."""
    if options.command == "probe":
        return None
    beside: Path = options.matrix.parent / _LATEST
    return options.reports or beside


def _check_writable(folder: Path) -> None:
    """See that a report can be written before a run takes its minutes. Raises OSError if not."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))


def _run_to_the_end(run: Coroutine[Any, Any, T]) -> T:
    """Return what a run returns.

    Not as the result of asyncio's main task: asyncio.run writes the repr of that when it puts
    the signal handler back, and the repr of a report takes seconds.
    """
    found: list[T] = []

    async def keep() -> None:
        found.append(await run)

    runner = asyncio.Runner()
    try:
        with _held_back():
            runner.get_loop()
        runner.run(keep())
    finally:
        runner.close()
        run.close()  # one that never began says that nobody awaited it
    return found[0]


@contextmanager
def _held_back() -> Iterator[None]:
    """Let a Ctrl-C wait until what is inside is done: half an event loop cannot be closed."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield
        return
    waiting: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    for number in waiting[:1]:
        signal.raise_signal(number)


def _parsed(arguments: Sequence[str], spoken: Spoken) -> argparse.Namespace:
    """Return the options; what no command knows is told as the command's own mistake."""
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
        reports=_reports(options),
        jobs=options.jobs,
        command=_typed(options),
    )


def _scope(options: argparse.Namespace) -> Scope:
    if options.command == "probe" or options.repro is False:
        return "none"
    if options.repro:
        return "all"
    return "none" if options.releases else "failing"


def _typed(options: argparse.Namespace) -> str:
    """Return the nox command that runs the same again."""
    words = ["nox", "-s", "matrix"]
    given = [
        word
        for name in ("models", "stacks", "dtypes", "attention", "devices")
        if (value := getattr(options, name))
        for word in (f"--{name}", value)
    ]
    given += [f"--{n}" for n in ("releases", "sweep", "causes") if getattr(options, n)]
    if getattr(options, "repro", None) is not None:
        given.append("--repro" if options.repro else "--no-repro")
    if options.matrix != DEFAULT_MATRIX:
        given += ["--matrix", shown_path(options.matrix)]
    return shlex.join([*words, "--", *given] if given else words)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line without what it holds of secrets."""

    spoken = NOBODY

    def error(self, message: str) -> NoReturn:
        super().error(self.spoken.text(message))


def _parser(spoken: Spoken) -> tuple[_Parser, dict[str, _Parser]]:
    """Return the whole parser, and those of its commands by name."""
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
        "--reports", type=_file, metavar="DIR", help="folder of the report (reports/latest)"
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
    add("--matrix", type=_file, default=DEFAULT_MATRIX, metavar="FILE", help="default: matrix.yaml")
    add("--models", default="", metavar="NAMES", help="names or patterns, such as 'llama*,gpt2'")
    add("--stacks", default="", metavar="IDS", help="such as 4.48,5.x")
    add("--dtypes", default="", metavar="NAMES", help="such as float32,bfloat16")
    add("--attention", default="", metavar="NAMES", help="such as eager,sdpa")
    add("--devices", default="", metavar="NAMES", help="such as cpu,cuda")
    add("--fresh", action="store_true", help="use no captures of earlier runs")
    add("--upgrade", action="store_true", help="resolve the stacks anew to their newest releases")
    add("--releases", action="store_true", help="run every release between the stacks, too")
    add("--sweep", action="store_true", help="try invariants at every length residue and split")
    add("--causes", action="store_true", help="trace rounding and expected differences, too")
    add("--jobs", type=_positive, metavar="N", help="cells at a time (one for each core)")


def _file(text: str) -> Path:
    """Return a path; a report says ``~`` for the home, and no shell expands what is quoted."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  Path's own raises where nobody is


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is no number of 1 or more"
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
        with _ended_as_interrupted(), _heard_again():
            code, lines = run(arguments, environ)
    except KeyboardInterrupt:
        spoken.say("interrupted; the same command goes on where it was", sys.stderr)
        return INTERRUPTED
    except Exception as error:
        known = _known(error)
        if known is None:
            raise
        spoken.say(str(known), sys.stderr)
        return known.exit_code
    for line in lines:
        spoken.say(line, sys.stdout)
    return code


def program(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do the same, and show where a defect is without what its traceback holds of secrets."""
    try:
        return main(arguments, environ)
    except Exception:  # noqa: BLE001  it is shown, and the program ends
        Spoken(environ).say(traceback.format_exc().rstrip(), sys.stderr)
        return 1


def _known(error: BaseException) -> SamebitsError | None:
    """Return what a user is told of an error, or of a group of them; None if it is a defect."""
    if isinstance(error, SamebitsError):
        return error
    if isinstance(error, BaseExceptionGroup):
        known = [_known(inner) for inner in error.exceptions]
        return known[0] if all(known) else None
    return MachineError(error) if isinstance(error, OSError) else None


_AGAIN = 0.02
"""Seconds behind which a Ctrl-C is heard again; an object is finalised long before."""


@contextmanager
def _heard_again() -> Iterator[None]:
    """Send a Ctrl-C once more that came while an object was finalised.

    Python ignores every exception there, with a traceback, so that the user's request would be lost.
    """
    before = sys.unraisablehook
    timers: list[threading.Timer] = []

    def send(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        timer = threading.Timer(_AGAIN, _interrupt)
        timer.daemon = True
        timers.append(timer)
        timer.start()

    sys.unraisablehook = send
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()


def _interrupt() -> None:
    """Send a Ctrl-C to the main thread, which then stops waiting for whatever it waits for."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """Take a request to end, or a closed terminal, as a Ctrl-C: what was started ends first."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # ignored, as of what a shell started in the background
            raise KeyboardInterrupt
        handler(number, frame)

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
