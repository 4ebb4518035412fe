"""``samebits report``, and how every command writes a report: without secrets, and for GitHub, too."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from samebits.base.options import Option
from samebits.base.redaction import Redaction
from samebits.cli.folders import check_reports
from samebits.pipeline.order import Files
from samebits.records.report import Report
from samebits.reports import again
from samebits.reports.formats.registry import GITHUB
from samebits.reports.plain import Place
from samebits.reports.write import Written, write
from samebits.terminal.github import annotation_lines, append_summary
from samebits.terminal.progress import Progress
from samebits.terminal.screen import columns_of_terminal
from samebits.terminal.summary import summary
from samebits.text.terminal import TerminalText


class ReportOptions(Files):
    """The options of ``samebits report``."""

    report: Annotated[Path, Option("REPORT.json", "")]
    """The report to read."""


def rewrite_report(
    options: ReportOptions, environ: Mapping[str, str], spoken: TerminalText
) -> list[str]:
    """Write the formats of a report that a run left; return the lines to print."""
    folder = options.reports or options.report.parent
    check_reports(folder)
    source = again.read(options.report)
    report = Redaction(environ).record(source.report)
    written = again.rewrite(
        source._replace(report=report),
        options.report,
        folder,
        options.formats,
        single_file=options.single_file,
        compress=options.compress,
    )
    if GITHUB in options.formats:
        publish_on_github(report, environ, spoken, {})
    return [
        spoken.log_line(line) for line in summary(report, written.opened, columns_of_terminal())
    ]


def write_report(
    report: Report,
    files: Mapping[str, str | bytes],
    choice: Files,
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
            report,
            folder,
            redacted,
            choice.formats,
            single_file=choice.single_file,
            compress=choice.compress,
        )
    finally:
        progress.end("writing the report")
        progress.close()


def publish_on_github(
    report: Report, environ: Mapping[str, str], spoken: TerminalText, code: Mapping[str, Place]
) -> None:
    """Append the job summary and print the annotations; nothing here decides the exit code."""
    for line in annotation_lines(report, environ, code):
        spoken.command(line, sys.stdout)
    problem = append_summary(report, environ)
    if problem:
        spoken.say(problem, sys.stderr)
