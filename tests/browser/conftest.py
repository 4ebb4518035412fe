"""A browser for the tests of report.html: the distribution's Chromium, driven by Playwright."""

import os
import shutil
from pathlib import Path

import pytest

from samebits.records.band import Band
from samebits.records.finding import Finding
from samebits.records.trace import Side, SourceDiff, TraceLine, TracePair
from samebits.reports import document
from samebits.reports.html import site
from tests.support.builders import cause_in
from tests.support.sample_report import (
    NEVER_WRITTEN,
    known_as,
    sample_report,
    with_cells,
    with_rows,
)

api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: nox -s browser"
)

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x1b[31m"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SHOTS = Path(os.environ.get("SAMEBITS_SCREENSHOTS", "reports/screenshots"))


def with_bands(report):
    """Return a report whose first row has a band for each stack, as a run with --releases has."""
    first, *others = report.rows
    bands = tuple(
        Band(stacks=(cell.cell.stack,), does=letter)
        for cell, letter in zip(first.cells, "ABCDEFGH", strict=False)
    )
    row = first.model_copy(update={"bands": bands})
    return report.model_copy(update={"rows": (row, *others)})


def with_cause(report):
    """Return a report in which gemma2 has a cause, with both of its sides and a change of source."""
    side = Side(stack="5.0", op="aten.mul.Tensor", function="rope", source="modeling.py:3")
    line = TraceLine(op="aten.mul.Tensor", shared=True)
    cause = cause_in(
        side,
        headline="mul.Tensor in rope",
        reference=side.model_copy(update={"stack": "4.48", "source": "modeling.py:2"}),
        diffs=(
            SourceDiff(function="rope", reference="a:1", candidate="a:2", diff="@@ -1 +1 @@\n-a"),
        ),
        around=(TracePair(reference=line, candidate=line, starts=True),),
    )
    rows = tuple(
        with_cells(
            row,
            *(
                cell.model_copy(update={"cause": cause}) if cell.first else cell
                for cell in row.cells
            ),
        )
        if row.model == "gemma2"
        else row
        for row in report.rows
    )
    return report.model_copy(update={"rows": rows})


def put(files, folder):
    """Write the files of a report into a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def program():
    """Return the path of Chromium; None without one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@pytest.fixture(scope="session")
def chromium():
    path = program()
    if path is None:
        pytest.skip("no Chromium: nox -s browser installs it")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


class Watched:
    """A page, and all that it asked for and complained about."""

    def __init__(self, page):
        self.page = page
        self.requests, self.complaints = [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning") and self.complaints.append(message.text)
            ),
        )

    def open(self, path, fragment=""):
        self.page.goto(f"{path.as_uri()}{fragment}")
        return self.page

    def check(self, folder):
        """No request left the folder of the report, and nothing went wrong."""
        inside = folder.as_uri()
        assert [url for url in self.requests if not url.startswith((inside, "blob:"))] == []
        assert self.complaints == []


@pytest.fixture
def watched(chromium):
    """Return a function that opens a page of its own in a browser of its own."""
    contexts = []

    def make(**options):
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        return Watched(context.new_page())

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Return the folder of the sample report."""
    report = with_cause(with_bands(sample_report()))
    documents = document.render(report)
    folder = put(site.folder(report, documents), tmp_path_factory.mktemp("report"))
    return put(documents, folder)


@pytest.fixture(scope="session")
def named(tmp_path_factory):
    """Return the folder of the sample report with the texts of its findings."""
    finding = Finding(code=NEVER_WRITTEN.code, where="model.table", evidence=("x",))
    rows = tuple(
        with_cells(row, *(known_as(cell, finding) for cell in row.cells))
        if row.model == "opensci-ref"
        else row
        for row in sample_report().rows
    )
    report = with_rows(*rows, rules=(NEVER_WRITTEN,))
    return put(site.folder(report, ()), tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="session")
def single(tmp_path_factory):
    report = sample_report()
    return put(site.single(report, ()), tmp_path_factory.mktemp("single"))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    report = sample_report(text=HOSTILE, message=HOSTILE, token=HOSTILE)
    return put(site.folder(report, ()), tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def shot():
    """Return a function that keeps a screenshot."""

    def keep(page, name):
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png")

    return keep
