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
import asyncio
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from samebits.base.errors import MachineError, SamebitsError, SelectionError, shown
from samebits.base.filestate import Dependencies
from samebits.base.homes import expanded
from samebits.base.redaction import Redaction
from samebits.check import command as check
from samebits.check import init
from samebits.gate import command as gate
from samebits.lint import command as lint_command
from samebits.matrix.known import near
from samebits.matrix.plan import DEFAULT_MATRIX, Selection, command_line, shown_path
from samebits.pipeline.opening import shard_store
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix, run_on_cluster, run_shard
from samebits.reports import again, issue
from samebits.reports.formats.registry import DEFAULT, FORMATS, GITHUB, NAMES
from samebits.reports.html import plot
from samebits.reports.write import write
from samebits.stacks.places import VARIABLE as CACHE
from samebits.stacks.places import cache_folder, checks_folder
from samebits.storage.prune import prune
from samebits.storage.receipt import Answer, save
from samebits.terminal.github import annotation_lines, append_summary
from samebits.terminal.progress import CellLines, choose
from samebits.terminal.screen import screen
from samebits.terminal.summary import summary
from samebits.text.lists import comma_list
from samebits.text.numbers import plural
from samebits.text.terminal import PLAIN, TerminalText

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence
    from types import FrameType

    from samebits.capsules.choosing import Scope
    from samebits.records.report import Report
    from samebits.reports.plain import Place
    from samebits.reports.write import Written
    from samebits.terminal.progress import Progress

T = TypeVar("T")

_EXIT_INTERRUPTED = 130
_INTERRUPTED = "interrupted; run the same command again to continue"
_LATEST = Path("reports") / "latest"


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[int, list[str]]:
    """Run a command; return the exit code and the lines to print.

    Raises:
        SamebitsError: a mistake of the user, with its exit code.

    """
    spoken = TerminalText(environ)
    options = _parsed(arguments, spoken)
    if options.command == "init":
        return 0, list(map(spoken.text, init.write_files(options)))
    if options.command == "plot":
        return 0, list(map(spoken.text, plot.write_chart(options)))
    if options.command == "check":
        return _checked(options, environ, spoken)
    if options.command == "issue":
        return 0, list(map(spoken.text, issue.write_issue(options)))
    if options.command == "report":
        return 0, _reported(options, environ, spoken)
    if options.command in ("record", "verify"):
        return _gated(options, environ, spoken)
    order, dependencies = _order(options), Dependencies()
    reports = _report_folder(options)
    if order.shard is not None:
        return _sharded(order, environ, spoken)
    if order.merged is None:
        _check_cache(environ)
    if reports is not None:
        _check_reports(reports)
    progress = partial(choose, spoken=spoken)
    run_order = run_matrix
    if order.on is not None:
        order, notes = _run_async(run_on_cluster(order, environ, progress))
        run_order = partial(run_matrix, notes=notes)
    report, files = _run_async(run_order(order, environ, progress, dependencies))
    if reports is None:
        redaction = Redaction(environ)
        failed = [redaction.text(stack.failure) for stack in report.stacks if stack.failure]
        return (1, failed) if failed else (0, [])
    report, written = _written(report, files, options, reports, Redaction(environ), progress(0))
    lines = [spoken.log_line(line) for line in summary(report, written.opened)]
    printed = Answer(report.exit_code, lines)
    if GITHUB in order.formats:
        _publish_on_github(report, environ, spoken, {})
    elif order.leaves_receipt:
        matrix = order.matrix, report.matrix_digest
        save(
            arguments,
            environ,
            matrix,
            dependencies,
            written.digests,
            report.started,
            printed,
        )
    prune(order.work_folder, dependencies.files.keys(), time.time())
    return printed.code, printed.lines


def _sharded(
    order: Order, environ: Mapping[str, str], spoken: TerminalText
) -> tuple[int, list[str]]:
    """Run one shard; return the exit code and what to do next.

    What its cells show is for the merge to judge, so a shard that ended has the exit code 0.
    """
    record, problems = _run_async(run_shard(order, environ, partial(choose, spoken=spoken)))
    store = shard_store(order)
    merge = f"--store {store}" if order.store else f"{Path(store).parent}/*"
    ended = ", ".join(f"{count} {state}" for state, count in Counter(record.cells.values()).items())
    lines = [
        *problems,
        f"Shard {record.number}/{record.of}: {plural(len(record.cells), 'cell')} ({ended or 'none'}).",
        f"Results: {store}. When all shards have ended: samebits merge {merge}",
    ]
    return 0, [spoken.log_line(line) for line in lines]


def _written(
    report: Report,
    files: Mapping[str, str | bytes],
    options: argparse.Namespace,
    folder: Path,
    redaction: Redaction,
    progress: Progress,
) -> tuple[Report, Written]:
    """Write a report without secrets; return it, and what was written."""
    progress.begin("writing the report", 0, "")
    try:
        report = redaction.record(report)
        redacted = {path: redaction.file(path, content) for path, content in files.items()}
        return report, write(
            report, folder, redacted, options.formats, single_file=options.single_file
        )
    finally:
        progress.end("writing the report")
        progress.close()


def _checked(
    options: argparse.Namespace, environ: Mapping[str, str], spoken: TerminalText
) -> tuple[int, list[str]]:
    """Run one model without a matrix file; return the exit code and one screen of lines."""
    _check_cache(environ)
    prepared = check.prepare(options)
    _check_reports(options.reports or check.REPORTS / prepared.name)
    for line in prepared.intro:
        spoken.say(line, sys.stderr)
    claimed = nullcontext(options.reports) if options.reports else check.claimed_folder(prepared)
    with claimed as folder:
        report, written, order = _run_check(prepared, folder, options, environ, spoken)
    if GITHUB in order.formats:
        _publish_on_github(report, environ, spoken, prepared.places)
    lines = screen(report, written.opened, prepared.places)
    return report.exit_code, [spoken.log_line(line) for line in lines]


def _run_check(
    prepared: check.Check,
    folder: Path,
    options: argparse.Namespace,
    environ: Mapping[str, str],
    spoken: TerminalText,
) -> tuple[Report, Written, Order]:
    """Run one model and write its report into a folder."""
    fields = {name: value for name, value in vars(options).items() if name in Order.model_fields}
    fields |= {
        "matrix": Path(prepared.name),
        "capsules": "all" if options.repro else "none",
        "reports": folder,
        "work": checks_folder(environ),
        "lock_age": check.LOCK_AGE,
        "program": prepared.program,
        "checks": True,
        "command": "",
    }
    order, dependencies = Order(**fields), Dependencies()
    command = check.shown_command(prepared, _level_words(options, order))
    order = order.model_copy(update={"command": command})
    progress = partial(choose, spoken=spoken)

    def cell_lines(total: int) -> Progress:
        return CellLines(progress(total))

    report, files = _run_async(
        run_matrix(order, environ, cell_lines, dependencies, prepared.matrix)
    )
    report, written = _written(report, files, options, folder, Redaction(environ), progress(0))
    prune(order.work_folder, dependencies.files.keys(), time.time())
    return report, written, order


def _reported(
    options: argparse.Namespace, environ: Mapping[str, str], spoken: TerminalText
) -> list[str]:
    """Write the formats of a report that a run left; return the lines to print."""
    folder = options.reports or options.report.parent
    _check_reports(folder)
    source = again.read(options.report)
    report = Redaction(environ).record(source.report)
    written = again.rewrite(
        source._replace(report=report),
        options.report,
        folder,
        options.formats,
        single_file=options.single_file,
    )
    if GITHUB in options.formats:
        _publish_on_github(report, environ, spoken, {})
    return [spoken.log_line(line) for line in summary(report, written.opened)]


def _publish_on_github(
    report: Report, environ: Mapping[str, str], spoken: TerminalText, code: Mapping[str, Place]
) -> None:
    """Append the job summary and print the annotations; nothing here decides the exit code."""
    for line in annotation_lines(report, environ, code):
        spoken.command(line, sys.stdout)
    problem = append_summary(report, environ)
    if problem:
        spoken.say(problem, sys.stderr)


def _gated(
    options: argparse.Namespace, environ: Mapping[str, str], spoken: TerminalText
) -> tuple[int, list[str]]:
    """Write samebits.lock, or compare the project's environment with it."""

    def say(line: str) -> None:
        spoken.say(line, sys.stderr)

    project = options.lock.absolute().parent
    if not (project / gate.WORK).is_dir():
        _check_cache(environ)
    if options.command == "record":
        if not options.dry_run:
            _check_lock(options.lock)
        return _run_async(gate.run_record(options, environ, say)), []
    file = Redaction(environ).record(_run_async(gate.run_verify(options, environ, say)))
    lines = gate.printed(file, options.format)
    return file.exit_code, lines if options.format == "json" else list(map(spoken.text, lines))


def _report_folder(options: argparse.Namespace) -> Path | None:
    """Return the folder of the report; None for a command without a report."""
    if options.command == "probe":
        return None
    default: Path = options.matrix.parent / _LATEST
    return options.reports or default


_SAMPLE_CACHE = "/var/tmp/samebits"


class FolderError(SamebitsError):
    """A folder that the run needs cannot be written."""


def _check_reports(folder: Path) -> None:
    """Raise FolderError before the run, which takes minutes, if the report cannot be written."""
    if reason := _not_writable(folder):
        msg = f"the report cannot be written to {folder.absolute()}: {reason}: name another folder with --reports"
        raise FolderError(msg)


def _check_lock(path: Path) -> None:
    """Raise FolderError before the run if the lock cannot be written."""
    if reason := _not_writable(path.absolute().parent):
        msg = f"{path} cannot be written: {reason}: name another file with --lock, or add --dry-run"
        raise FolderError(msg)


def _check_cache(environ: Mapping[str, str]) -> None:
    """Raise FolderError if the folder of the environments cannot be written."""
    folder = cache_folder(environ)
    if reason := _not_writable(folder):
        named = f"{CACHE} names it" if environ.get(CACHE) else f"no {CACHE} names another one"
        msg = (
            f"the cache folder {folder} cannot be written: {reason}. Environments and work files lie there, and "
            f"{named}. Set {CACHE} to a folder that can be written and kept, such as "
            f"export {CACHE}={_SAMPLE_CACHE}"
        )
        raise FolderError(msg)


def _not_writable(folder: Path) -> str | None:
    """Return why nothing can be made in a folder, which need not exist yet; None if it can."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(dir=existing, prefix=".samebits-"):
            return None
    except OSError as error:
        return f"{existing}: {error.strerror or error}" if existing != folder else error.strerror


def _run_async(run: Coroutine[Any, Any, T]) -> T:
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
    PLAIN.say(_INTERRUPTED, sys.stderr)
    _leave()


def _leave() -> NoReturn:
    """End the program at once. The processes of stacks end with it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(_EXIT_INTERRUPTED)


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


def _parsed(arguments: Sequence[str], spoken: TerminalText) -> argparse.Namespace:
    """Return the options; an unknown option is reported with the usage of the command."""
    parser, commands = _parser(spoken)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = commands[options.command]
        names = [name for action in command._actions for name in action.option_strings]
        word = unknown[0].partition("=")[0]
        hint = near(word[2:], [name[2:] for name in names]) if word.startswith("--") else ""
        hint = hint.replace('"', '"--', 1)
        command.error(f"unknown option or argument: {' '.join(unknown)}{hint}")
    return options


def _order(options: argparse.Namespace) -> Order:
    """Return the order; an option fills the field of its name, and some fields follow from more."""
    given = vars(options)
    filters = {name: given[name] for name in Selection.model_fields}
    fields = {name: value for name, value in given.items() if name in Order.model_fields}
    fields |= {
        "selection": Selection.parse(**filters),
        "capsules": _scope(options),
        "reports": _report_folder(options),
        "program": _program("matrix"),
        "command": "",
    }
    if options.command == "merge":
        fields["merged"] = _merged(options)
    order = Order(**fields)
    return order.model_copy(update={"command": _command(options, order)})


def _merged(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the folders to merge. Raises SelectionError."""
    missing = [folder for folder in options.folders if not folder.is_dir()]
    if missing:
        msg = f"{missing[0]} is no folder: name the folders that the shards left, such as shards/*"
        raise SelectionError(msg)
    if not options.folders and options.store is None:
        msg = (
            "nothing to merge: name the folders that the shards left, such as shards/*, or --store"
        )
        raise SelectionError(msg)
    return tuple(map(str, options.folders))


def _scope(options: argparse.Namespace) -> Scope:
    if options.command == "probe" or options.repro is False:
        return "none"
    if options.repro:
        return "all"
    scans = options.releases or options.scan
    return "none" if scans or options.level == "quick" else "failing"


def _command(options: argparse.Namespace, order: Order) -> str:
    """Return the command for a run that shows the same."""
    words = [
        word
        for name in Selection.model_fields
        if (value := getattr(options, name))
        for word in (f"--{name}", value)
    ]
    words += _level_words(options, order)
    if str(options.matrix) != DEFAULT_MATRIX:
        words += ["--matrix", shown_path(options.matrix)]
    return command_line(order.program, words)


def _level_words(options: argparse.Namespace, order: Order) -> list[str]:
    """Return the options that say how much is asked."""
    words = order.repeated_words()
    if getattr(options, "repro", None) is not None:
        words.append("--repro" if options.repro else "--no-repro")
    return words


_SESSION = re.compile(r"^def\s+matrix\s*\(", re.MULTILINE)


def _has_session() -> bool:
    """Return True if the current folder has a noxfile with a session for the matrix."""
    try:
        text = Path("noxfile.py").read_text("utf-8", "replace")
    except OSError:
        return False
    return _SESSION.search(text) is not None


def _program(command: str) -> tuple[str, ...]:
    """Return the words that start a command, as it was started: by nox, or samebits itself."""
    if "NOX_CURRENT_SESSION" not in os.environ or not _has_session():
        return "samebits", command
    return "nox", "-s", {"probe": "probe(4.48)"}.get(command, command)


def _shown_program(command: str) -> str:
    program = _program(command)
    return shlex.join(program) + (" --" if program[0] == "nox" else "")


class _Parser(argparse.ArgumentParser):
    """A parser whose error messages have secrets redacted."""

    spoken = PLAIN

    def error(self, message: str) -> NoReturn:
        super().error(self.spoken.text(message))


def _parser(spoken: TerminalText) -> tuple[_Parser, dict[str, _Parser]]:
    """Return the main parser, and the parsers of its commands by name."""
    parser = _Parser(
        prog="samebits",
        description="Does a model compute the same bits under every transformers release?",
    )
    parser.add_argument("--version", action="version", version=f"samebits {version('samebits')}")
    commands = parser.add_subparsers(dest="command", required=True)
    matrix = commands.add_parser(
        "matrix",
        help="run the matrix and write the report",
        description=_MATRIX_HELP,
        prog=_shown_program("matrix"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    probe = commands.add_parser(
        "probe",
        help="build the stacks and run the cells, without a comparison and a report",
        prog=_shown_program("probe"),
    )
    merge = commands.add_parser(
        "merge",
        help="write the report of a run from its shards",
        description=_MERGE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    merge.add_argument(
        "folders", nargs="*", type=expanded, metavar="DIR", help="the results of shards: shards/*"
    )
    matrix.add_argument(
        "--on",
        metavar="ADDRESS",
        help="run the cells on a Ray cluster: local, auto or ray://HOST:PORT (needs samebits[ray])",
    )
    matrix.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="run only part I of N, and leave its results in --store or shards/I-of-N for samebits merge",
    )
    check_command = commands.add_parser(
        "check",
        help="run one model, in a folder or on the hub, from one release to another",
        description=_CHECK_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_arguments(check_command)
    init_command = commands.add_parser(
        "init",
        help="write a matrix.yaml for your models, and a noxfile.py",
        description="Write matrix.yaml and, if there is none, noxfile.py into the current folder.",
    )
    init.add_arguments(init_command)
    report = commands.add_parser(
        "report",
        help="write a report in other formats, from its report.json and without a run",
        description=_REPORT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument("report", type=expanded, metavar="REPORT.json", help="the report to read")

    issue_command = commands.add_parser(
        "issue",
        help=issue.HELP,
        description=_ISSUE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    issue.add_arguments(issue_command)
    plot_command = commands.add_parser("plot", help=plot.HELP, description=_PLOT_HELP)
    _add_plot(plot_command)
    record = commands.add_parser(
        "record",
        help="keep the bits of models in samebits.lock",
        description=gate.RECORD_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verify = commands.add_parser(
        "verify",
        help="compare the project's environment with samebits.lock",
        description=gate.VERIFY_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    gate.add_arguments(record, verify)
    # __main__ runs this command itself, without what is imported here
    commands.add_parser("lint", help=lint_command.HELP, add_help=False)
    for command in (matrix, merge, probe):
        _add_filters(command)
    for command in (matrix, merge, probe, check_command):
        _add_options(command)
    for command in (
        parser,
        matrix,
        merge,
        probe,
        check_command,
        init_command,
        issue_command,
        plot_command,
        record,
        verify,
        report,
    ):
        command.spoken = spoken
    folders = {
        matrix: "reports/latest",
        merge: "reports/latest",
        check_command: "reports/check/NAME",
        report: "that of REPORT.json",
    }
    for command, default in folders.items():
        command.add_argument(
            "--reports",
            type=expanded,
            metavar="DIR",
            help=f"folder for the report (default: {default})",
        )
        command.add_argument(
            "--format",
            dest="formats",
            type=_formats,
            action=_Formats,
            default=DEFAULT,
            metavar="NAMES",
            help=f"formats of the report, such as md,junit; repeatable: {_FORMATS_HELP}. "
            f"report.json is always written. Default: {','.join(DEFAULT[1:])}",
        )
        command.add_argument(
            "--single-file",
            action="store_true",
            help="write report.html as one file that holds all its pages, to send or to attach",
        )
    for command in (matrix, merge, check_command):
        command.add_argument(
            "--repro",
            action=argparse.BooleanOptionalAction,
            help="write a capsule for every difference: a folder with scripts that show it without "
            "samebits. --no-repro: write none. Default: for differences that make the run fail; "
            "with --releases, --scan or --quick none",
        )
    return parser, dict(commands.choices)


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command by its name."""
    return {**_parser(PLAIN)[1], "lint": lint_command.make_parser()}


_FORMATS_HELP = "; ".join(f"{format.name}: {format.what}" for format in FORMATS)


class _Formats(argparse.Action):
    """Adds the formats of one option to those of the options before it."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401  as argparse declares it
        _option: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest)
        names = values if earlier is self.default else (*earlier, *values)
        setattr(namespace, self.dest, tuple(dict.fromkeys(names)))


def _formats(text: str) -> tuple[str, ...]:
    """Return the names of formats, which commas separate."""
    names = comma_list(text)
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        msg = f"{shown(unknown[0] if unknown else text)} is no format: write some of {', '.join(NAMES)}"
        raise argparse.ArgumentTypeError(msg)
    return names


def _add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the matrix and its cells."""
    add = parser.add_argument
    add(
        "--matrix",
        type=expanded,
        default=Path(DEFAULT_MATRIX),
        metavar="FILE",
        help="the matrix to run (default: matrix.yaml)",
    )
    add(
        "--models",
        default="",
        metavar="NAMES",
        help="run only these models: names or patterns, such as 'llama*,gpt2'",
    )
    add("--stacks", default="", metavar="IDS", help="run only these stacks, such as 4.48,5.x")
    add(
        "--dtypes",
        default="",
        metavar="NAMES",
        help="run only these dtypes, such as float32,bfloat16",
    )
    add(
        "--attention",
        default="",
        metavar="NAMES",
        help="run only these attention implementations, such as eager,sdpa",
    )
    add(
        "--devices", default="", metavar="NAMES", help="run only on these devices, such as cpu,cuda"
    )


def _add_plot(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``samebits plot``."""
    add = parser.add_argument
    add("cell", metavar="CELL", help="such as olmo3/float32-default@5.2")
    add(
        "--report",
        type=expanded,
        default=_LATEST / "report.json",
        metavar="FILE",
        help="the report.json to read (default: reports/latest/report.json)",
    )
    add("--chart", default="", metavar="NAME", help="'error by layer' (the default) or 'ladder'")
    add(
        "--output",
        type=expanded,
        metavar="FILE",
        help="the .svg or .png file to write (default: NAME.svg beside the report)",
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how much is asked: fields of the order, by their names."""
    add = parser.add_argument
    add(
        "--fresh",
        action="store_true",
        help="run every cell again; reuse no results of earlier runs",
    )
    add(
        "--upgrade",
        action="store_true",
        help="resolve the stacks again, to the newest releases that match",
    )
    levels = parser.add_mutually_exclusive_group()
    levels.add_argument(
        "--quick",
        dest="level",
        action="store_const",
        const="quick",
        default="default",
        help="every signal and the precision ladder; no relations, usage, processors, crossings, causes",
    )
    levels.add_argument(
        "--deep",
        dest="level",
        action="store_const",
        const="deep",
        help="run every cell twice in full, and ask everything of models of any size",
    )
    between = parser.add_mutually_exclusive_group()
    between.add_argument(
        "--releases",
        nargs="?",
        const=True,
        default=False,
        choices=("all",),
        metavar="all",
        help="also run every minor release between the stacks; --releases all: every patch release, "
        "too, as a bug may live in one of them alone",
    )
    between.add_argument(
        "--scan",
        default="",
        metavar="PACKAGE",
        help="run the newest stack with each minor release of this package that fits, or each patch "
        "release if only one does, such as "
        "tokenizers or 'accelerate>=1.4', and with transformers as it is",
    )
    add(
        "--causes",
        action="store_true",
        help="also trace rounding and expected differences to their causes",
    )
    add(
        "--store",
        metavar="URL",
        help="share results with other machines: a folder, or s3://, gs://, az:// with a bucket",
    )
    add(
        "--jobs",
        type=_positive,
        metavar="N",
        help="number of cells that run at the same time (default: number of cores)",
    )


def _shard(text: str) -> tuple[int, int]:
    """Return the number of a shard and how many there are."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        msg = f"{text!r} is no shard: write I/N, such as 2/8, with I from 1 to N"
        raise argparse.ArgumentTypeError(msg)
    return int(number), int(of)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a whole number of at least 1"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


_MATRIX_HELP = """\
Run every model of matrix.yaml in every stack, compare the results and write the report.

Filters are names or shell patterns, separated by commas. A filter that matches nothing is an error.
The report replaces the earlier one in the same folder. The commands after "To reproduce" in a report
write to another folder, reports/reproduce/MODEL@STACK.

Exit codes:
  0  everything is identical, rounding, absent or expected
  1  something fails
  2  there is a mistake in matrix.yaml or on the command line
  3  incomplete: nothing fails, but a cell is not finished or not observed
"""


_PLOT_HELP = """\
Write a chart of one cell as SVG or PNG, as report.html shows it. It needs the extra samebits[plot].
"""


_MERGE_HELP = """\
Write the report of a run whose shards ran on several machines (samebits matrix --shard I/N).

The shards' results are fetched from the folders, and from --store. Give the same matrix.yaml, filters
and level as the shards had. What needs several cells is computed here: comparisons, the precision
ladder, causes. The report is that of one run. A shard that left no result is named.

Exit codes: as of samebits matrix.
"""


_CHECK_HELP = """\
Run one model under two releases of transformers and say what moved: no file is needed.

MODEL is a folder with config.json, or an id on the hub. The releases are those from the one that saved
the model to the newest, unless --from and --to name others. The report goes to reports/check/NAME in the
current folder. What is kept between checks lies in the cache folder of the platform (SAMEBITS_CACHE).

Exit codes: as of samebits matrix.
"""


_ISSUE_HELP = """\
Write an issue about what fails in a report and is in no issue yet, for a run that nobody watches.

A difference is not new if an open issue of samebits has it, or a closed one for the same release of
transformers. If nothing is new, no file is written. The exit code is 0 either way.
"""


_REPORT_HELP = """\
Write the formats of a report from its report.json. Nothing is run, and no fact changes.

The files go beside REPORT.json, or to --reports DIR with a copy of it. Formats that the folder has are
written again. The exit code is 0 if the report was written, whatever the report says.
"""


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run, print, and return the exit code; a user's mistake is printed without a traceback."""
    spoken = TerminalText(environ)
    if arguments[:1] == ["lint"]:
        return lint_command.main(arguments[1:])
    try:
        with _signals_as_sigint(), _resend_lost_sigint():
            code, lines = run(arguments, environ)
    except KeyboardInterrupt:
        spoken.say(_INTERRUPTED, sys.stderr)
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
    """Like :func:`main`, but print the traceback of an internal error with secrets redacted.

    After an interrupt the program ends at once, whatever its threads are busy with.
    """
    try:
        code = main(arguments, environ)
        if code == _EXIT_INTERRUPTED:
            _leave()
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
