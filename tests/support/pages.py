"""What tests of the report read out of its pages: anchors, links, structure; and names that attack it."""

import difflib
import os
import re
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from samebits.reports import model_pages

GOLD = Path(__file__).parents[1] / "gold"


@contextmanager
def uncut():
    """Pages of models without a limit: where a page is cut depends on the length of the texts in it."""
    with mock.patch.multiple(model_pages, MAX_SECTION=10**9, MIN_STORY=10**9):
        yield


GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def beside_models(documents):
    """Return report.md and the pages of its subjects, one after the other: all but the models'."""
    own = {
        path: text for path, text in documents.items() if not path.startswith(("models/", "api-"))
    }
    return "\n".join(own.values())


def pages_of(documents):
    """Return the paths of the models' pages, and of the page of API checks."""
    return [path for path in documents if path.startswith(("models/", "api-"))]


NASTY = [
    "|",
    "\\|",
    "a\\",
    "`",
    "``` ```",
    "a\n```\nb",
    "~~~",
    "<details>",
    "</details>",
    "<!-- ",
    "&amp;",
    "&#124;",
    "*a* __b__ _c_",
    "[a](b)",
    "![a](b)",
    "# h",
    "h #",
    "- a",
    "1. a",
    "1)",
    "> q",
    "---",
    "===",
    "a\n\nb",
    "a\r\n| b |\n|---|",
    "\x1b[31mred\x1b[0m",
    "\u202eabc",
    "\ud800",
    "\u0301",
    "    code",
    "\t",
    "",
    " ",
    "<https://a.b>",
    "$x$",
    "~x~",
    "\\",
    "版主",
]


texts = st.one_of(
    st.sampled_from(NASTY), st.lists(st.sampled_from(NASTY), max_size=3).map("".join), st.text()
)


def assert_gold(name, text, folder="report"):
    """Compare with the gold file, or write it where SAMEBITS_REFRESH_GOLD asks for that."""
    path = GOLD / folder / name
    if os.environ.get("SAMEBITS_REFRESH_GOLD"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        pytest.skip(f"wrote {path}")
    lines = difflib.unified_diff(
        path.read_text("utf-8").splitlines(),
        text.splitlines(),
        f"gold/{folder}/{name}",
        "now",
        lineterm="",
    )
    difference = "\n".join(lines)
    assert not difference, f"tests/gold/README.md says how to refresh\n{difference}"


def structure(text):
    """Every block of the document, and the marks within, without any text."""
    return [
        (
            token.type,
            [c.type for c in token.children or [] if c.type not in ("text", "code_inline")],
        )
        for token in GFM.parse(text)
    ]


def anchors_of(text):
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_of(text):
    """What links point to; markdown-it leaves out what only looks like a link."""
    children = (child for token in GFM.parse(text) for child in token.children or [])
    return [child.attrs["href"] for child in children if child.type == "link_open"]
