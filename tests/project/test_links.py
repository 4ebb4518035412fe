"""Links within the repository, and within the committed report, lead to a file and a heading."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")
LINK = re.compile(r"(?<!\\)\]\(([^()\s]+)\)")

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/**/*.md",
    "tests/**/README.md",
    "examples/**/*.md",
    "reports/zoo/**/*.md",
)


@cache
def text_of(path):
    return FENCE.sub("", path.read_text("utf-8"))


@cache
def anchors_of(path):
    headings = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def broken(path):
    """Return the links of a document that lead nowhere."""
    for target in LINK.findall(CODE.sub("", text_of(path))):
        if not target.startswith(("https://", "http://")):
            file, _, anchor = target.partition("#")
            other = (path.parent / unquote(file)).resolve() if file else path
            if not other.exists() or (anchor and unquote(anchor) not in anchors_of(other)):
                yield target


@pytest.mark.parametrize("pattern", DOCUMENTS)
def test_every_link_leads_to_a_file_and_a_heading(pattern):
    paths = sorted(ROOT.glob(pattern))
    assert paths
    found = {str(path.relative_to(ROOT)): [*broken(path)] for path in paths}
    assert {path: links for path, links in found.items() if links} == {}


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A b\n[x](#a-b) [y](#b) [z](other.md) [w](page.md#a-b)\n```\n[v](gone)\n```\n"
    )
    assert [*broken(page)] == ["#b", "other.md"]
