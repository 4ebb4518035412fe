"""``samebits matrix``, ``probe`` and ``merge``: runs of the cells of matrix.yaml."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from samebits.base.errors import SelectionError
from samebits.base.filestate import Dependencies
from samebits.base.options import record_of
from samebits.base.redaction import Redaction
from samebits.capsules.choosing import Scope
from samebits.cli.folders import check_cache, check_reports
from samebits.cli.interrupts import run_async
from samebits.cli.parser import program_words
from samebits.cli.report import publish_on_github, write_report
from samebits.matrix.plan import Selection, command_line, matrix_words, shown_path
from samebits.pipeline.opening import shard_store
from samebits.pipeline.order import Order
from samebits.pipeline.run import merge_command, run_matrix, run_on_cluster, run_shard
from samebits.reports.formats.registry import GITHUB
from samebits.storage.prune import prune
from samebits.storage.receipt import Answer, save
from samebits.terminal.progress import choose
from samebits.terminal.screen import columns_of_terminal
from samebits.terminal.summary import summary
from samebits.text.numbers import plural
from samebits.text.terminal import TerminalText

_LATEST = Path("reports") / "latest"


def run_cells(
    options: argparse.Namespace,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    spoken: TerminalText,
) -> tuple[int, list[str]]:
    """Run the cells of a matrix; return the exit code and the lines to print."""
    order, dependencies = _order(options), Dependencies()
    reports = order.reports
    if order.shard is not None:
        return _sharded(order, environ, spoken)
    if order.merged is None:
        check_cache(environ)
    if reports is not None:
        check_reports(reports)
    progress = partial(choose, spoken=spoken)
    run_order = run_matrix
    if order.on is not None:
        order, notes = run_async(run_on_cluster(order, environ, progress))
        run_order = partial(run_matrix, notes=notes)
    report, files = run_async(run_order(order, environ, progress, dependencies))
    if reports is None:
        redaction = Redaction(environ)
        failed = [redaction.text(stack.failure) for stack in report.stacks if stack.failure]
        return (1, failed) if failed else (0, [])
    report, written = write_report(report, files, order, reports, Redaction(environ), progress(0))
    lines = [
        spoken.log_line(line) for line in summary(report, written.opened, columns_of_terminal())
    ]
    printed = Answer(report.exit_code, lines)
    if GITHUB in order.formats:
        publish_on_github(report, environ, spoken, {})
    elif order.leaves_receipt:
        matrix = order.matrix, report.matrix_digest
        save(arguments, environ, matrix, dependencies, written.digests, report.started, printed)
    prune(order.work_folder, dependencies.files.keys(), time.time())
    return printed.code, printed.lines


def _sharded(
    order: Order, environ: Mapping[str, str], spoken: TerminalText
) -> tuple[int, list[str]]:
    """Run one shard; return the exit code and what to do next.

    What its cells show is for the merge to judge, so a shard that ended has the exit code 0.
    """
    record, problems = run_async(run_shard(order, environ, partial(choose, spoken=spoken)))
    store = shard_store(order)
    ended = ", ".join(f"{count} {state}" for state, count in Counter(record.cells.values()).items())
    lines = [
        *problems,
        f"Shard {record.number}/{record.of}: {plural(len(record.cells), 'cell')} ({ended or 'none'}).",
        f"Results: {store}. When all shards have ended: {merge_command(order, store)}",
    ]
    return 0, [spoken.log_line(line) for line in lines]


def _order(options: argparse.Namespace) -> Order:
    """Return the order; an option fills the field of its name, and some fields follow from more."""
    filters = {name: getattr(options, name) for name in Selection.model_fields}
    order = record_of(
        Order,
        options,
        selection=Selection.parse(**filters),
        capsules=_scope(options),
        reports=_report_folder(options),
        merged=_merged(options) if options.command == "merge" else None,
        program=program_words("matrix"),
        command="",
    )
    return order.model_copy(update={"command": _command(options, order)})


def _merged(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the folders to merge. Raises SelectionError."""
    missing = [folder for folder in options.merged if not folder.is_dir()]
    if missing:
        msg = f"{missing[0]} is no folder: name the folders that the shards left, such as shards/*"
        raise SelectionError(msg)
    if not options.merged and options.store is None:
        raise SelectionError(
            "nothing to merge: name the folders that the shards left, such as shards/*, or --store"
        )
    return tuple(map(str, options.merged))


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
    words += order.repeated_words()
    words += matrix_words(shown_path(options.matrix))
    return command_line(order.program, words)


def _report_folder(options: argparse.Namespace) -> Path | None:
    """Return the folder of the report; None for a command without a report."""
    if options.command == "probe":
        return None
    default: Path = options.matrix.parent / _LATEST
    return options.reports or default
