"""``samebits check``: a run of one model, which needs no matrix.yaml."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from samebits.base.filestate import Dependencies
from samebits.base.options import record_of
from samebits.base.redaction import Redaction
from samebits.check import command as check
from samebits.cli.folders import check_cache, check_reports
from samebits.cli.interrupts import run_async
from samebits.cli.report import publish_on_github, write_report
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix
from samebits.reports.formats.registry import GITHUB
from samebits.stacks.places import checks_folder
from samebits.storage.prune import prune
from samebits.terminal.progress import CellLines, choose
from samebits.terminal.screen import columns, screen

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from samebits.records.report import Report
    from samebits.reports.write import Written
    from samebits.terminal.progress import Progress
    from samebits.text.terminal import TerminalText


def check_model(
    options: argparse.Namespace, environ: Mapping[str, str], spoken: TerminalText
) -> tuple[int, list[str]]:
    """Run one model without a matrix file; return the exit code and one screen of lines."""
    check_cache(environ)
    prepared = check.prepare(record_of(check.Options, options))
    check_reports(options.reports or check.REPORTS / prepared.name)
    for line in prepared.intro:
        spoken.say(line, sys.stderr)
    claim = nullcontext(options.reports) if options.reports else check.claimed_folder(prepared)
    with claim as folder:
        report, written, order = _run(prepared, folder, options, environ, spoken)
    if GITHUB in order.formats:
        publish_on_github(report, environ, spoken, prepared.places)
    typed = check.typed_command(prepared, order.repeated_words())
    own_report = report.model_copy(update={"command": typed})
    lines = screen(own_report, written.opened, prepared.places, columns())
    return report.exit_code, [spoken.log_line(line) for line in lines]


def _run(
    prepared: check.Check,
    folder: Path,
    options: argparse.Namespace,
    environ: Mapping[str, str],
    spoken: TerminalText,
) -> tuple[Report, Written, Order]:
    """Run one model and write its report into a folder."""
    order = record_of(
        Order,
        options,
        matrix=Path(prepared.name),
        capsules="all" if options.repro else "none",
        reports=folder,
        work=checks_folder(environ),
        lock_age=check.LOCK_AGE,
        program=prepared.program,
        checks=True,
        command="",
    )
    dependencies = Dependencies()
    command = check.shown_command(prepared, order.repeated_words())
    order = order.model_copy(update={"command": command})
    progress = partial(choose, spoken=spoken)

    def cell_lines(total: int) -> Progress:
        return cast("Progress", CellLines(progress(total)))

    report, files = run_async(run_matrix(order, environ, cell_lines, dependencies, prepared.matrix))
    report, written = write_report(report, files, order, folder, Redaction(environ), progress(0))
    prune(order.work_folder, dependencies.files.keys(), time.time())
    return report, written, order
