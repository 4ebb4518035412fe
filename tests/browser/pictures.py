"""The pictures of the docs, of the pages of the committed report: ``nox -s pictures``.

Each picture holds the first line of that report.md, by which a test finds one that is stale.
"""

import struct
import tempfile
import zlib
from pathlib import Path

from playwright.sync_api import sync_playwright

from samebits.reports import again, document
from samebits.reports.html import site
from samebits.reports.html.addresses import HOME, model_page, upgrade_page
from tests.browser.conftest import program, put

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "reports" / "zoo" / "report.json.xz"
PICTURES = {
    "matrix": (HOME, 900),
    "upgrade": (upgrade_page("5.2", "5.x"), 900),
    "cell": (model_page("gemma2"), 1150),
}
"""Name of a picture -> the page, and how much of it is seen."""
WIDTH = 1280
START = 8 + 25
"""Bytes of a PNG up to the end of its header."""
KEY = b"Description"


def main():
    report = again.read(REPORT).report
    documents = document.render(report)
    headline = documents["report.md"].partition("\n")[0]
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        folder = put(site.folder(report, documents), Path(made))
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        for name, (path, height) in PICTURES.items():
            size = {"width": WIDTH, "height": height}
            page = browser.new_page(viewport=size, color_scheme="light")
            page.goto((folder / path).as_uri())
            if path == HOME:
                page.wait_for_selector("[data-ready]")
                # what changed stands above it, and fills a page of its own
                page.evaluate("document.getElementById('matrix-title').scrollIntoView()")
            to = ROOT / "docs" / f"{name}.png"
            to.write_bytes(described(page.screenshot(), headline))
        browser.close()


def described(png, text):
    """Return a picture with a text behind its header."""
    content = b"tEXt" + KEY + b"\0" + text.encode("latin-1", "replace")
    chunk = struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
    return png[:START] + chunk + png[START:]


if __name__ == "__main__":
    main()
