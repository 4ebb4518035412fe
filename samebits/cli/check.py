"""``samebits check``: a run of one model, which needs no matrix.yaml."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from samebits.base.filestate import Dependencies
from samebits.base.options import record_of
from samebits.base.redaction import Redaction
from samebits.base.wheels import WHEELS
from samebits.check.command import Check, prepare
from samebits.check.folder import REPORTS, claimed_folder
from samebits.check.options import Options
from samebits.cli.folders import check_cache, check_reports
from samebits.cli.interrupts import run_async
from samebits.cli.report import publish_on_github, write_report
from samebits.findings.packages import NEEDED
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix
from samebits.reports.formats.registry import GITHUB
from samebits.stacks.places import LOCK_AGE, checks_folder
from samebits.storage.prune import prune
from samebits.storage.receipt import Answer, save
from samebits.terminal.progress import CellLines, Progress, choose
from samebits.terminal.screen import columns, screen

if TYPE_CHECKING:
    import argparse

    from samebits.matrix.spec import Matrix
    from samebits.records.report import Report
    from samebits.reports.write import Written
    from samebits.text.terminal import TerminalText

    Ran = tuple[Report, dict[str, str | bytes]]

_NOT_WATCHED = ("packages", "environment_packages", "imports", "model_class", "inputs")
"""Options that name files or packages whose changes a receipt does not notice."""


def check_model(
    options: argparse.Namespace,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    spoken: TerminalText,
) -> tuple[int, list[str]]:
    """Run one model without a matrix file; return the exit code and one screen of lines."""
    check_cache(environ)
    prepared = prepare(record_of(Options, options), options.scan)
    check_reports(options.reports or REPORTS / prepared.name)
    for line in prepared.intro:
        spoken.say(line, sys.stderr)
    claim = (
        nullcontext(options.reports)
        if options.reports
        else claimed_folder(prepared.name, prepared.source)
    )
    dependencies = Dependencies()
    with claim as folder:
        report, written, order = _run(prepared, folder, options, environ, spoken, dependencies)
    if GITHUB in order.formats:
        publish_on_github(report, environ, spoken, prepared.places)
    typed = prepared.command.to_type(order.repeated_words())
    own_report = report.model_copy(update={"command": typed})
    lines = screen(own_report, written.opened, prepared.places, columns(), prepared.last)
    printed = Answer(report.exit_code, [spoken.log_line(line) for line in lines])
    is_watched = not any(getattr(options, name) for name in _NOT_WATCHED)
    if GITHUB not in order.formats and order.leaves_receipt and is_watched:
        expires = _expires(order, dependencies)
        digests, started = written.digests, report.started
        save(arguments, environ, None, dependencies, digests, started, printed, expires)
    return printed.code, printed.lines


def with_missing_packages(
    ran: Callable[[Matrix], Ran], matrix: Matrix, spoken: TerminalText
) -> Ran:
    """Run a matrix, and again with the packages that its loads miss and that have wheels everywhere.

    The first run stays if they cannot be had beside an environment: an exception that names a package says
    more than an installation that fails.
    """
    first = ran(matrix)
    packages = _missing_packages(first[0])
    if not packages:
        return first
    spoken.say(f"a load needs {', '.join(packages)}: added, and run again", sys.stderr)
    models = (
        model.model_copy(update={"packages": (*model.packages, *packages)})
        for model in matrix.models
    )
    # Python names one missing module at a time
    second = with_missing_packages(ran, matrix.model_copy(update={"models": tuple(models)}), spoken)
    if any(beside.failure for beside in second[0].packages):
        spoken.say(f"{', '.join(packages)} cannot be had here: run without", sys.stderr)
        return first
    return second


def _missing_packages(report: Report) -> tuple[str, ...]:
    """Return what the loads of a report miss and what no model lists."""
    listed = {name for beside in report.packages for name in beside.listed}
    missed = dict.fromkeys(
        finding.where
        for cell in report.cells
        for finding in cell.findings
        if finding.code == NEEDED
    )
    return tuple(name for name in missed if name in WHEELS and name not in listed)


def _expires(order: Order, dependencies: Dependencies) -> float:
    """Return when the first of a check's locks is resolved again, in seconds since the epoch."""
    locks = order.work_folder / "locks"
    used = [Path(path) for path in dependencies.files if Path(path).parent == locks]
    # a lock that could not be resolved is none: with --scan no older release of the package fits
    resolved = min((path.stat().st_mtime for path in used if path.is_file()), default=0.0)
    return resolved + LOCK_AGE


def _run(
    prepared: Check,
    folder: Path,
    options: argparse.Namespace,
    environ: Mapping[str, str],
    spoken: TerminalText,
    dependencies: Dependencies,
) -> tuple[Report, Written, Order]:
    """Run one model and write its report into a folder."""
    order = record_of(
        Order,
        options,
        matrix=Path(prepared.name),
        capsules="all" if options.repro else "none",
        reports=folder,
        work=checks_folder(environ),
        lock_age=LOCK_AGE,
        program=prepared.command.program,
        checks=True,
        command="",
    )
    command = prepared.command.shown(order.repeated_words())
    order = order.model_copy(update={"command": command})
    progress = partial(choose, spoken=spoken)

    def cell_lines(total: int) -> Progress:
        return cast("Progress", CellLines(progress(total)))

    def ran(matrix: Matrix) -> Ran:
        return run_async(run_matrix(order, environ, cell_lines, dependencies, matrix))

    report, files = with_missing_packages(ran, prepared.matrix, spoken)
    report, written = write_report(report, files, order, folder, Redaction(environ), progress(0))
    prune(order.work_folder, dependencies.files.keys(), time.time())
    return report, written, order
