"""The pages of docs/findings/: what each finding is, its cause and its remedy, as code reads them.

A page has a front matter of ``key: value`` lines, and the paragraphs of :data:`_PARAGRAPHS`. This
module imports nothing but the standard library, as ``samebits lint`` starts at once.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).parents[1]
_CANDIDATES = (_PACKAGE / "_findings", _PACKAGE.parent / "docs" / "findings")
"""A wheel has the pages in the package; a checkout and an editable install, next to it."""

PAGES = next((folder for folder in _CANDIDATES if folder.is_dir()), _CANDIDATES[0])

KINDS = {
    "crash": "an exception",
    "silent": "wrong numbers and no exception",
    "rounding": "the same function, rounded differently",
    "api": "a different shape, type or name",
}
"""Kind of a finding -> its meaning."""

CODE_NAME = re.compile(
    r"""(
        `[^`]+`
      | [A-Za-z_][\w.]*\([^()\s]*\)(?:\.\w+(?:\([^()\s]*\))?)*  # a call
      | (?:[\w-]+/)+[\w.-]*\w                      # a path
      | \.?\b[A-Za-z][\w.]*_[\w.]*\w(?:=\w+(?:\.\w+)*)?     # snake_case
      | \b_[\w.]*\w
      | \b(?:[a-z_]+\.)*[A-Za-z]+[a-z]+[A-Z]\w+\b     # CamelCase
      | \b[A-Z]+_[A-Z_]+\b
    )""",
    re.VERBOSE,
)
"""Matches code in plain text: a name that shows by itself that it is code, or what has backticks."""

_FRONT_MATTER = re.compile(r"---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_VALUES = {
    "code": re.compile(r"SB\d{3}"),
    "kind": re.compile("|".join(KINDS)),
    "scope": re.compile("model|release"),
    "seen_in": re.compile(r"[a-z]+(\.[a-z_]+)?"),
}
"""Key of the front matter -> its values; only a finding about a release has ``seen_in``."""
_BLOCK = re.compile(r"^```.*?^```$|(?:^[^\n]+\n?)+", re.DOTALL | re.MULTILINE)
_PARAGRAPHS = {
    "name": ("# {code} ", ""),
    "kind": ("*{kind}: {meaning}*", ""),
    "hit_if": ("**Hit if** ", "."),
    "looks_for": ("**Looks for** ", "."),
    "cause": ("**Cause.** ", ""),
    "remedy": ("**Remedy.** ", ""),
    "example": ("```python\n", "\n```"),
    "instead": ("| name ", ""),
    "releases": ("**Releases.** ", ""),
    "references": ("**See** ", ""),
    "index": ("[all findings](README.md)", ""),
}
"""Field of a page -> how its paragraph begins and ends, in the order of a page."""
_OPTIONAL = {"hit_if", "example", "instead", "references"}
_ROW = re.compile(r"\|\s`([^`]+)`\s*\|\s(.+?)\s*\|")


class PageError(ValueError):
    """A page is not as a finding needs it; the message begins with file and line."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        super().__init__(f"{path}:{line}: {what}")


class FindingPage(NamedTuple):
    """What a page says, as plain text: backticks only where code does not show by itself."""

    code: str
    kind: str
    scope: str
    seen_in: str
    """``processors.parts``: the question, or the field of a row, and what of its answer on a stack
    shows a behaviour of a release; '' for a defect of a model."""
    name: str
    hit_if: str
    """Which config, files or use are hit, such as ``you train with gradient checkpointing``; '' where a page
    does not say it in short."""
    looks_for: str
    cause: str
    remedy: str
    example: str
    instead: dict[str, str]
    releases: str
    references: tuple[str, ...]


@cache
def finding_page(code: str) -> FindingPage:
    """Return the page of a finding; the first call reads it."""
    return read(PAGES / f"{code}.md")


def read(path: Path) -> FindingPage:
    """Return what a page says; raise PageError at the line that is wrong."""
    text = path.read_text("utf-8")
    front = _FRONT_MATTER.match(text)
    if front is None:
        raise PageError(path, 1, "a page begins with a front matter between two lines of ---")
    matter = _front_matter(path, front[1])
    paragraphs = _paragraphs(path, text, front.end(), matter)
    return FindingPage(
        code=matter["code"],
        kind=matter["kind"],
        scope=matter["scope"],
        seen_in=matter.get("seen_in", ""),
        name=_plain(paragraphs["name"]),
        hit_if=_plain(paragraphs.get("hit_if", "")),
        looks_for=_plain(paragraphs["looks_for"]),
        cause=_plain(paragraphs["cause"]),
        remedy=_plain(paragraphs["remedy"]),
        example=paragraphs.get("example", ""),
        instead=_instead(path, text, paragraphs.get("instead", "")),
        releases=_plain(paragraphs["releases"]),
        references=tuple(
            reference[1:-1] if reference.startswith("<https://") else _plain(reference)
            for reference in map(str.strip, paragraphs.get("references", "").split(";"))
            if reference
        ),
    )


def _front_matter(path: Path, text: str) -> dict[str, str]:
    matter: dict[str, str] = {}
    for line, entry in enumerate(text.splitlines(), 2):
        key, _, value = (part.strip() for part in entry.partition(":"))
        if key not in _VALUES or key in matter:
            problem = f"{key!r} is unknown or twice: a front matter has {', '.join(_VALUES)}"
            raise PageError(path, line, problem)
        if not _VALUES[key].fullmatch(value):
            raise PageError(path, line, f"{key} is {_VALUES[key].pattern}, not {value!r}")
        if key == "code" and value != path.stem:
            raise PageError(path, line, f"code {value}, and the file has the name of {path.stem}")
        matter[key] = value
    keys = [key for key in _VALUES if key != "seen_in" or matter.get("scope") == "release"]
    if matter.keys() != set(keys):
        raise PageError(path, 1, f"a front matter of this scope has {', '.join(keys)}")
    return matter


def _paragraphs(path: Path, text: str, start: int, matter: dict[str, str]) -> dict[str, str]:
    """Return the content of each paragraph by its field."""
    paragraphs: dict[str, str] = {}
    missing = list(_PARAGRAPHS)
    for block in _BLOCK.finditer(text, start):
        paragraph = block[0].removesuffix("\n")
        line = _line(text, block.start())
        while missing:
            field = missing.pop(0)
            begin, end = _PARAGRAPHS[field]
            begin = begin.format(**matter, meaning=KINDS[matter["kind"]])
            if paragraph.startswith(begin) and paragraph.endswith(end):
                paragraphs[field] = paragraph.removeprefix(begin).removesuffix(end)
                break
            if field not in _OPTIONAL:
                raise PageError(path, line, f"{begin!r} is expected here, not {paragraph[:40]!r}")
        else:
            raise PageError(path, line, f"nothing is expected here: {paragraph[:40]!r}")
    if missing:
        begin = next(_PARAGRAPHS[field][0] for field in missing if field not in _OPTIONAL)
        raise PageError(path, _line(text, len(text) - 1), f"the page ends without {begin!r}")
    return paragraphs


def _instead(path: Path, text: str, table: str) -> dict[str, str]:
    """Return the rows of a table; its first two lines are a head."""
    instead = {}
    for row in table.splitlines()[2:]:
        cells = _ROW.fullmatch(row)
        if cells is None:
            raise PageError(path, _line(text, text.index(row)), f"no row of code and text: {row!r}")
        instead[cells[1]] = _plain(cells[2])
    return instead


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _plain(markdown: str) -> str:
    """Return a paragraph as plain text on one line."""
    parts = re.split(r"`([^`]+)`", " ".join(markdown.split()))
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = re.sub(r"\\([^\w\s])", r"\1", part)
        elif not ((shows := CODE_NAME.match(part)) and shows[0] == part):
            parts[i] = f"`{part}`"
    return "".join(parts)
