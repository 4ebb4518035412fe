"""Addresses of the HTML pages and of the places in them, for a folder and for a single file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from urllib.parse import quote

from samebits.records.ids import CellId
from samebits.text.names import page_path

HOME = "report.html"
"""The first page, beside report.md."""

MARK = "<!-- Part of the report of samebits -->"
"""A line near the start of every page, by which it is known to be written by samebits."""

FOLDER = "html"
"""Folder of all other pages and of what they load, in the folder of report.md."""

RELEASES = f"{FOLDER}/releases.html"

_UNSAFE = re.compile(r"[^A-Za-z0-9.@_-]")

_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#([0-9]+)")


def model_page(model: str) -> str:
    """Return the path of a model's page, relative to report.html."""
    return f"{FOLDER}/{page_path(model).removesuffix('.md')}.html"


def upgrade_page(first: str, last: str) -> str:
    """Return the path of the page about an upgrade from one stack to another."""
    return f"{FOLDER}/upgrade/{quote(first, safe='')}..{quote(last, safe='')}.html"


def anchor(*parts: str) -> str:
    """Return an id for an element, which is a valid fragment as it is."""
    return "--".join(map(_plain, parts))


def cell_anchor(cell: CellId) -> str:
    """Return the id of what a model's page says about a cell."""
    return anchor(cell.model, f"{cell.variant}@{cell.stack}")


def _plain(text: str) -> str:
    plain = _UNSAFE.sub("_", text)
    if plain == text:
        return text
    digest = sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
    return f"{plain}-{digest[:6]}"


def web_address(reference: str) -> str:
    """Return the address of a web page or of ``owner/name#123`` on GitHub; '' for other texts."""
    if reference.startswith("https://"):
        return reference
    match = _ISSUE.fullmatch(reference)
    return f"https://github.com/{match[1]}/issues/{match[2]}" if match else ""


class Addresses:
    """Makes links: between files of a folder, or between the parts of a single file.

    ``only_model`` is the one model of a report: its page is then the first page.
    """

    def __init__(self, *, is_single: bool, only_model: str = "") -> None:
        self._is_single = is_single
        self._moved = {model_page(only_model): HOME} if only_model else {}

    def path(self, target: str) -> str:
        """Return the path of a page, relative to report.html."""
        return self._moved.get(target, target)

    def page(self, source: str, target: str, place: str = "") -> str:
        """Return the link from one page to another, or to a place in it."""
        source, target = self.path(source), self.path(target)
        if self._is_single:
            return f"#{place or self.part(target)}"
        fragment = f"#{place}" if place else ""
        if source == target:
            return fragment or "#"
        return self.file(source, target) + fragment

    def file(self, source: str, target: str) -> str:
        """Return the link from a page to any other file of the report."""
        start = "." if self._is_single else posixpath.dirname(self.path(source)) or "."
        return quote(posixpath.relpath(target, start))

    def in_html(self, source: str, models: Iterable[str]) -> Callable[[str], str]:
        """Return where a link of a section in Markdown leads from a page; '' unless it leads to one of the models."""
        pages = {page_path(model): model_page(model) for model in models}

        def address(target: str) -> str:
            path = target.removeprefix("../").partition("#")[0]
            return self.page(source, pages[path]) if path in pages else ""

        return address

    @staticmethod
    def part(target: str) -> str:
        """Return the id of a page as a part of a single file."""
        return anchor("page", target)
