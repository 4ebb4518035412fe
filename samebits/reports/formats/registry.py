"""The formats that a report can be written in; ``--format`` names them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from samebits.records.report import Report
from samebits.reports import document, packed
from samebits.reports.formats import compat, github, junit
from samebits.reports.html import site
from samebits.reports.html.addresses import HOME, MARK, model_page
from samebits.text.names import page_path

JSON = "json"
"""The format that is always written: it has all facts, and lists the files of the others."""
GITHUB = github.__name__.rpartition(".")[2]
DEFAULT = (JSON, "md", "html")


class Form(NamedTuple):
    """What the files of a format depend on besides the report."""

    documents: Collection[str]
    """Paths of the files of the formats before it, for links."""
    single_file: bool
    """report.html holds all its pages and all that they load."""
    data: str = packed.NAME
    """The file with all facts."""


def _html(report: Report, form: Form) -> Mapping[str, str | bytes]:
    make = site.single if form.single_file else site.folder
    return make(report, form.documents)


class Format(NamedTuple):
    """One format besides JSON."""

    name: str
    what: str
    """What it is for, in a few words."""
    main: str
    """The file to open, relative to the report's folder."""
    mark: str
    """Text near the start of that file, by which it is known to be written by samebits."""
    files: Callable[[Report, Form], Mapping[str, str | bytes]]
    """Returns the content of each file by its path."""
    page: Callable[[str], str] | None = None
    """Returns the path of the page of a model, where a format has such pages."""


FORMATS = (
    Format(
        "md",
        "report.md and a page for each model",
        document.REPORT,
        "# samebits: ",
        lambda report, form: document.render(report, form.data),
        page_path,
    ),
    Format(
        "html",
        "report.html, to sort, to filter and to look at",
        HOME,
        MARK,
        _html,
        model_page,
    ),
    Format(
        "junit",
        "a test case for each cell, for CI services",
        junit.PATH,
        '<testsuites name="samebits ',
        lambda report, _form: junit.render(report),
    ),
    Format(
        GITHUB,
        "a job summary, and annotations on the log of GitHub Actions",
        github.PATH,
        "# samebits: ",
        lambda report, _form: github.render(report),
    ),
    Format(
        "compat",
        "for each model the ranges of releases that do the same",
        compat.PATH,
        compat.MARK,
        lambda report, _form: compat.render(report),
    ),
)
"""Formats besides JSON; the first that a report has is the one that a reader is sent to."""

NAMES = (JSON, *(format.name for format in FORMATS))


def chosen(names: Iterable[str]) -> list[Format]:
    """Return the formats of these names, in the order of :data:`FORMATS`."""
    names = set(names)
    return [format for format in FORMATS if format.name in names]


def render(
    report: Report, names: Iterable[str], data: str = packed.NAME, *, single_file: bool = False
) -> dict[str, str | bytes]:
    """Return the files of some formats by their paths; ``data``, which is report.json, is not among them."""
    files: dict[str, str | bytes] = {}
    for format in chosen(names):
        files |= format.files(report, Form(files.keys(), single_file, data))
    return files
