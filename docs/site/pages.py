"""A Sphinx extension: what links of this repository lead to besides pages, and the list of findings.

A link to a file that is no page, such as a schema, a diff or a test, leads to a page that shows the
file. A link to a folder leads to a list of its files. So the site is whole without a network.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

MAX_SHOWN = 400_000
"""Size in bytes above which a file is named and not shown."""

FINDINGS = "docs/findings/README"
NOT_SEARCHED = ("docs/decisions", "CHANGELOG", "tests/gold/README")
"""Pages for contributors: their words are those of users' questions, and their answers are not."""
BESIDE = "docs/atlas/"
"""Pages that docs/atlas.md links, and no navigation lists: there is one for each type."""
_FOLDER = "files"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("source-read", _list_findings)
    app.connect("source-read", _hide_from_search)
    app.connect("source-read", _leave_out_of_navigation)
    # before the collectors of Sphinx, which would copy each file as a download
    app.connect("doctree-read", _link_files, priority=100)
    app.connect("html-collect-pages", _file_pages)
    app.connect("build-finished", _repair_theme)
    return {"version": "1", "env_version": 1, "parallel_read_safe": False}


_REPAIRS = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    "<pre><span></span>": '<pre tabindex="0"><span></span>',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Navigation">',
    '<th class="head"><p></p></th>': '<td class="head"></td>',
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
}
"""HTML of the theme -> the same with what a keyboard and a screen reader need."""


def _repair_theme(app: Sphinx, error: Exception | None) -> None:
    """Replace in every page what axe reports of the theme."""
    if error is not None or app.builder.name != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text("utf-8")
        for before, after in _REPAIRS.items():
            text = text.replace(before, after)
        path.write_text(text, "utf-8", newline="\n")


def _list_findings(_app: Sphinx, name: str, source: list[str]) -> None:
    """Give the index of the findings its entries in the navigation."""
    if name == FINDINGS:
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\nSB*\n```\n"


def _hide_from_search(_app: Sphinx, name: str, source: list[str]) -> None:
    if name.startswith(NOT_SEARCHED):
        source[0] = f"---\nnosearch: true\n---\n{source[0]}"


def _leave_out_of_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    if name.startswith(BESIDE):
        source[0] = f"---\norphan: true\n---\n{source[0]}"


def _link_files(app: Sphinx, document: nodes.document) -> None:
    """Replace links to files and folders that are no page."""
    name = app.env.docname
    targets = app.env.__dict__.setdefault("samebits_files", set())
    for node in [*document.findall(_is_file_link)]:
        path = _target(app, name, node)
        if path is None:
            continue
        targets.add(path)
        uri = app.builder.get_relative_uri(name, f"{_FOLDER}/{path}")
        node.replace_self(nodes.reference("", "", *node.children, refuri=uri, internal=True))


def _is_file_link(node: nodes.Node) -> bool:
    return isinstance(node, (addnodes.download_reference, addnodes.pending_xref))


def _target(app: Sphinx, name: str, node: nodes.Element) -> str | None:
    """Return the file or folder that a link means, relative to the root; None for a page."""
    target = node["reftarget"].partition("#")[0]
    if node.get("refdomain") == "doc":
        if target in app.env.found_docs:
            return None
        target = f"/{target}.md"
    path, absolute = app.env.relfn2path(target, name)
    return path.rstrip("/") if Path(absolute).exists() else None


def _file_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each file that is linked, and for those of a linked folder."""
    root = Path(app.srcdir)
    queue = sorted(getattr(app.env, "samebits_files", ()))
    done: set[str] = set()
    for path in queue:
        if path in done:
            continue
        done.add(path)
        if (root / path).is_dir():
            inside = [p for p in sorted((root / path).iterdir()) if not _is_hidden(p)]
            queue += [f"{path}/{p.name}" for p in inside]
            body = _listing(path, inside)
        else:
            body = _content(app, root / path)
        title = f"<h1><code>{html.escape(path)}</code></h1>"
        context = {"title": path, "body": f"{title}{body}"}
        yield f"{_FOLDER}/{path}", context, "page.html"


def _is_hidden(path: Path) -> bool:
    return path.name.startswith((".", "__"))


def _listing(path: str, inside: list[Path]) -> str:
    name = html.escape(path.rpartition("/")[2])
    items = (
        f'<li><a href="{name}/{html.escape(p.name)}.html">{html.escape(p.name)}</a></li>'
        for p in inside
    )
    return f"<ul>{''.join(items)}</ul>"


def _content(app: Sphinx, path: Path) -> str:
    """Return a file with the colours of its language."""
    size = path.stat().st_size
    if size > MAX_SHOWN:
        return f"<p>{size:,} bytes: too long for a page.</p>"
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        return f"<p>{size:,} bytes that are no text.</p>"
    highlighter = app.builder.highlighter  # type: ignore[attr-defined]
    return highlighter.highlight_block(text, _language(path), linenos=False, force=True)


def _language(path: Path) -> str:
    try:
        return get_lexer_for_filename(path.name).aliases[0]
    except ClassNotFound:
        return "text"
