"""The formats that a report can be written in; ``--format`` names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.reports import document
from samebits.reports.formats import github, junit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from samebits.records.report import Report

JSON = "json"
"""The format that is always written: it has all facts, and lists the files of the others."""
GITHUB = github.__name__.rpartition(".")[2]
DEFAULT = (JSON, "md")


class Format(NamedTuple):
    """One format besides JSON."""

    name: str
    what: str
    """What it is for, in a few words."""
    main: str
    """The file to open, relative to the report's folder."""
    mark: str
    """Text near the start of that file, by which it is known to be written by samebits."""
    files: Callable[[Report], Mapping[str, str | bytes]]
    """Returns the content of each file by its path."""


FORMATS = (
    Format(
        "md",
        "report.md and a page for each model",
        document.REPORT,
        "# samebits: ",
        document.render,
    ),
    Format(
        "junit",
        "a test case for each cell, for CI services",
        junit.PATH,
        '<testsuites name="samebits ',
        junit.render,
    ),
    Format(
        GITHUB,
        "a job summary, and annotations on the log of GitHub Actions",
        github.PATH,
        "# samebits: ",
        github.render,
    ),
)
"""Formats besides JSON; the first that a report has is the one that a reader is sent to."""

NAMES = (JSON, *(format.name for format in FORMATS))


def chosen(names: Iterable[str]) -> list[Format]:
    """Return the formats of these names, in the order of :data:`FORMATS`."""
    names = set(names)
    return [format for format in FORMATS if format.name in names]


def render(report: Report, names: Iterable[str]) -> dict[str, str | bytes]:
    """Return the files of some formats by their paths; report.json is not among them."""
    return {path: text for format in chosen(names) for path, text in format.files(report).items()}
