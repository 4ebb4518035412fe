"""The command line: ``matrix`` runs cells and writes the report, ``probe`` only runs them.

``check`` runs one model without a file, ``init`` writes the file, ``lint`` reads code, ``plot`` draws
a chart of a report. ``record`` keeps bits in samebits.lock, and ``verify`` compares the project's
environment with it.

Exit codes: 0, every comparison is identical, rounding, absent or expected; 1, something fails;
2, a mistake in matrix.yaml or on the command line; 3, nothing fails, but something was not finished
or not observed.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from samebits.base.errors import EXIT_INTERRUPTED, INTERRUPTED, MachineError, SamebitsError
from samebits.base.options import record_of
from samebits.base.redaction import Redaction
from samebits.base.workfolder import WORK
from samebits.bisect import command as bisect
from samebits.check import bump, init
from samebits.cli import warm
from samebits.cli.check import check_model
from samebits.cli.folders import check_cache, check_lock
from samebits.cli.interrupts import (
    is_interrupt,
    leave,
    resend_lost_sigint,
    run_async,
    signals_as_sigint,
)
from samebits.cli.matrix import run_cells
from samebits.cli.parser import ALONE, parsed
from samebits.cli.report import ReportOptions, rewrite_report
from samebits.gate import command as gate
from samebits.golden import command as golden
from samebits.reports import issue
from samebits.reports.html import plot
from samebits.text.terminal import PLAIN, TerminalText
from samebits.watch import command as watch


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[int, list[str]]:
    """Run a command; return the exit code and the lines to print.

    Raises:
        SamebitsError: a mistake of the user, with its exit code.

    """
    spoken = TerminalText(environ)
    options = parsed(arguments, spoken)
    if options.command in ("matrix", "probe", "merge"):
        return run_cells(options, arguments, environ, spoken)
    if options.command == "check":
        return check_model(options, arguments, environ, spoken)
    if options.command in _JUDGES:
        return _judged(options, environ, spoken)
    if options.command in ("record", "verify"):
        return _gated(options, environ, spoken)
    if options.command == "report":
        return 0, rewrite_report(record_of(ReportOptions, options), environ, spoken)
    if options.command == "warm":
        return 0, list(map(spoken.text, warm.lines(record_of(warm.WarmOptions, options), environ)))
    kind, write = _WRITERS[options.command]
    return 0, list(map(spoken.text, write(record_of(kind, options))))


_WRITERS: dict[str, tuple[Any, Callable[[Any], list[str]]]] = {
    "init": (init.Options, init.write_files),
    "issue": (issue.Options, issue.write_issue),
    "bump": (bump.Options, bump.write_bump),
    "plot": (plot.Options, plot.write_chart),
}
"""Command that only writes files -> its options, and what writes and returns the lines to print."""

_JUDGES: dict[str, Any] = {"bisect": bisect, "golden": golden, "watch": watch}
"""Command that answers with a record -> its module."""


def _judged(
    options: argparse.Namespace, environ: Mapping[str, str], spoken: TerminalText
) -> tuple[int, list[str]]:
    """Find the commits at which a model's bits change, why a test's values moved, or what a night changed."""
    command = _JUDGES[options.command]
    check_cache(environ)
    say = partial(spoken.say, stream=sys.stderr)
    work = command.run(record_of(command.Options, options), environ, say)
    record = Redaction(environ).record(run_async(work))
    shown = (
        [record.model_dump_json(indent=1)] if options.format == "json" else command.lines(record)
    )
    return command.exit_code(record), list(map(spoken.text, shown))


def _gated(
    options: argparse.Namespace, environ: Mapping[str, str], spoken: TerminalText
) -> tuple[int, list[str]]:
    """Write samebits.lock, or compare the project's environment with it."""
    say = partial(spoken.say, stream=sys.stderr)
    if not (options.lock.absolute().parent / WORK).is_dir():
        check_cache(environ)
    if options.command == "record":
        if not options.dry_run:
            check_lock(options.lock)
        recorded = gate.run_record(record_of(gate.RecordOptions, options), environ, say)
        return run_async(recorded), []
    verified = gate.run_verify(record_of(gate.VerifyOptions, options), environ, say)
    file = Redaction(environ).record(run_async(verified))
    lines = gate.printed(file, options.format)
    return file.exit_code, lines if options.format == "json" else list(map(spoken.text, lines))


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run, print, and return the exit code; a user's mistake is printed without a traceback."""
    try:
        return _main(arguments, environ)
    except KeyboardInterrupt:
        PLAIN.say(INTERRUPTED, sys.stderr)
        return EXIT_INTERRUPTED


def _main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    spoken = TerminalText(environ)
    if arguments and arguments[0] in ALONE:
        code: int = ALONE[arguments[0]].main(arguments[1:])
        return code
    try:
        with signals_as_sigint(), resend_lost_sigint():
            code, lines = run(arguments, environ)
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        user_error = _user_error(error)
        if user_error is None:
            raise
        spoken.say(str(user_error), sys.stderr)
        return user_error.exit_code
    for line in lines:
        spoken.say(line, sys.stdout)
    return code


def program(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Like :func:`main`, but print the traceback of an internal error with secrets redacted.

    After an interrupt the program ends at once, whatever its threads are busy with.
    """
    try:
        code = main(arguments, environ)
        if code == EXIT_INTERRUPTED:
            leave()
        return code
    except Exception:  # noqa: BLE001  it is printed, and the program ends
        TerminalText(environ).say(traceback.format_exc().rstrip(), sys.stderr)
        return 1


def _user_error(error: BaseException) -> SamebitsError | None:
    """Return the error to show to the user, the first of a group; None for an internal error."""
    if isinstance(error, SamebitsError):
        return error
    if isinstance(error, BaseExceptionGroup):
        user_errors = [_user_error(inner) for inner in error.exceptions]
        return user_errors[0] if all(user_errors) else None
    return MachineError(error) if isinstance(error, OSError) else None
