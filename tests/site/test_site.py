"""The site of docs/ builds without a warning, its links lead somewhere, and it needs no network.

The site is built once, in reports/site/, where it stays to be looked at. All of this is skipped
without Sphinx; ``nox -s site`` installs it.
"""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="nox -s site installs Sphinx")

ROOT = Path(__file__).parents[2]
SITE = ROOT / "reports" / "site"
BUILD = (sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-E", "-a", "-q")

pytestmark = pytest.mark.processes


class Page(HTMLParser):
    """The ids, the links, and what a browser would fetch by itself."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.fetched, self.inline = {""}, [], [], []
        self._tag = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self._tag = tag
        self.ids |= {named[name] for name in ("id", "name") if named.get(name)}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif tag == "link" and named.get("rel") in {"stylesheet", "icon", "preload", "preconnect"}:
            self.fetched.append(named["href"])
        elif tag in {"script", "img", "iframe", "source", "video"} and named.get("src"):
            self.fetched.append(named["src"])

    def handle_data(self, data):
        if self._tag in {"style", "script"}:
            self.inline.append(data)


def build(source, target, *options):
    """Build a site; return the exit code and the messages."""
    command = [*BUILD, *options, str(source), str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def broken(pages, folder):
    """Return the links of a site that lead to no page or to no place on it."""
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.suffix != ".html":
                if not target.is_file():
                    yield str(path.relative_to(folder)), link
            elif target not in pages or unquote(parts.fragment) not in pages[target].ids:
                yield str(path.relative_to(folder)), link


def remote(pages):
    """Return what the pages would fetch from elsewhere."""
    for path, page in pages.items():
        for address in page.fetched:
            if urlsplit(address).scheme not in {"", "data"} or address.startswith("//"):
                yield path.name, address
        for text in page.inline:
            if re.search(r"@import|url\(['\"]?https?:|import\(['\"]https?:", text):
                yield path.name, text[:80]


def read(folder):
    return {path: Page(path) for path in folder.resolve().rglob("*.html")}


@pytest.fixture(scope="module")
def pages():
    shutil.rmtree(SITE, ignore_errors=True)  # a page that is gone must not stay
    code, messages = build(ROOT, SITE, "-c", "docs/site")
    assert code == 0, messages
    return read(SITE)


def test_every_page_of_the_repository_is_there(pages):
    names = {path.relative_to(SITE.resolve()).as_posix() for path in pages}
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for path in documents:
        assert path.relative_to(ROOT).with_suffix(".html").as_posix() in names


def test_links_lead_to_a_page_and_a_place(pages):
    assert sum(len(page.links) for page in pages.values()) > 5_000
    assert [*broken(pages, SITE.resolve())] == []


def test_the_theme_is_for_keyboards_and_screen_readers_too(pages):
    """What axe reported of its headings, code blocks and drawers; the contrast of code is that of its style."""
    for path in pages:
        text = path.read_text("utf-8")
        assert 'role="heading">' not in text, path
        assert "<pre><span></span>" not in text, path
        assert '<aside class="sidebar-drawer">' not in text, path
        assert '<th class="head"><p></p></th>' not in text, path


def test_nothing_comes_from_elsewhere(pages):
    assert [*remote(pages)] == []
    for path in SITE.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", path.read_text("utf-8")), path


def test_every_page_can_be_reached_from_the_first(pages):
    first = SITE.resolve() / "docs" / "index.html"
    reached, queue = {first}, [first]
    while queue:
        path = queue.pop()
        for link in pages[path].links:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve()
            if not parts.scheme and parts.path and target in pages and target not in reached:
                reached.add(target)
                queue.append(target)
    assert {path.name for path in set(pages) - reached} <= {"index.html", "search.html"}


def test_the_root_leads_to_the_first_page(pages):
    assert pages[SITE.resolve() / "index.html"].links == ["docs/index.html"]


def test_a_file_that_is_linked_is_shown(pages):
    schema = SITE / "files" / "samebits" / "schemas" / "matrix.schema.json.html"
    text = re.sub(r"<[^>]+>", "", schema.read_text("utf-8"))
    assert "samebits: matrix.yaml" in text
    folder = SITE / "files" / "tests" / "custom" / "open-sci-ref.html"
    assert "open-sci-ref/all.diff.html" in folder.read_text("utf-8")


def test_the_search_index_has_the_rules(pages):
    assert "SB301" in (SITE / "searchindex.js").read_text("utf-8")


PLANTED = {
    "a page that is gone": ("[x](gone.md)", "gone.md"),
    "a heading that is gone": ("[x](index.md#gone)", "gone"),
    "a heading of this page": ("[x](#gone)", "gone"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_broken_link_fails_the_build(tmp_path, name):
    text, what = PLANTED[name]
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    (source / "docs" / "index.md").write_text(f"# First\n\n{text}\n", "utf-8")
    code, messages = build(source, tmp_path / "site", "-c", str(ROOT / "docs" / "site"))
    assert code != 0
    assert what in messages


def test_a_broken_link_and_a_foreign_script_are_seen(tmp_path):
    (tmp_path / "a.html").write_text(
        "<script src='https://cdn.example/x.js'></script><style>@import 'x'</style>"
        "<h1 id=top></h1><a href=a.html#top></a><a href=#gone></a><a href=b.html></a>"
    )
    pages = read(tmp_path)
    assert [link for _, link in broken(pages, tmp_path.resolve())] == ["#gone", "b.html"]
    assert len([*remote(pages)]) == 2
