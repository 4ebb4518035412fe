"""The pictures of the docs show the committed report, and are small."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_BYTES = 300_000
AGAIN = "a picture of another report: nox -s pictures"


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.png")), ids=lambda path: path.name)
def test_a_picture_is_of_the_committed_report(path):
    """tests/browser/pictures.py writes the first line of report.md into each of them."""
    headline = (ROOT / "reports" / "zoo" / "report.md").read_text("utf-8").partition("\n")[0]
    content = path.read_bytes()
    assert b"tEXtDescription\0" + headline.encode("latin-1", "replace") in content[:1000], AGAIN
    assert len(content) <= MAX_BYTES
