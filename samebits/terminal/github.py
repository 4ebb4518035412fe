"""What a run leaves with GitHub Actions: a part of the job summary, and annotations in the log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from samebits.records.report import Report
from samebits.reports.formats.github import MAX_BYTES, summary, workflow_commands
from samebits.reports.plain import Place

SUMMARY = "GITHUB_STEP_SUMMARY"
"""Variable with the path of the summary of the current step."""
WORKSPACE = "GITHUB_WORKSPACE"
"""Variable with the root of the repository."""


def append_summary(report: Report, environ: Mapping[str, str]) -> str:
    """Append the job summary to the step's; return why that failed, '' if it did not.

    A failure must not decide how a run ends, so it is no exception.
    """
    name = environ.get(SUMMARY)
    if not name:
        return ""
    path = Path(name)
    try:
        size = path.stat().st_size if path.exists() else 0
        text = summary(report, MAX_BYTES - size)
        if not text:
            return f"{SUMMARY} is full: {size:,} bytes; job-summary.md has the summary of this run"
        with path.open("a", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(text)
    except OSError as error:
        return f"the job summary could not be written: {SUMMARY}={name}: {error.strerror}"
    return ""


def annotation_lines(
    report: Report, environ: Mapping[str, str], code: Mapping[str, Place]
) -> list[str]:
    """Return the annotations of a run, with paths as GitHub reads them: from the repository's root."""
    current = Path.cwd()
    root = Path(environ.get(WORKSPACE) or current)
    prefix = current.relative_to(root).as_posix() if current.is_relative_to(root) else ""
    return workflow_commands(report, code, os.path.isfile, prefix)
