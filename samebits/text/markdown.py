"""Escaping for markdown: names, messages and tokens can never become markup.

All text in a report that does not come from samebits passes through :func:`prose`, :func:`code`
or :func:`html_text`. The type :class:`Markdown` marks text that is escaped.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import LiteralString

MAX_INLINE = 100
"""Number of characters above which a text inside a line is shortened in its middle."""


CACHE_SIZE = 1 << 14
"""Size of the caches: a report contains the same names and numbers thousands of times."""


class Markdown(str):
    """Text that is safe to put into a report unchanged; a plain ``str`` is not."""

    __slots__ = ()


EMPTY = Markdown("")

_ALWAYS_SPECIAL = re.compile(r"[\\`*\[\]<&~$]")
_UNDERSCORES = re.compile(r"(?<![A-Za-z0-9_])_+|_+(?![A-Za-z0-9_])")
_SPECIAL_AT_START = re.compile(
    r"""
    \A (?:
        [>\#]                # quote, heading
      | [-+] (?=\s|\Z)      # list
      | [-=] (?=[-=\s]*\Z)  # rule, or underline of a heading
    )
    """,
    re.VERBOSE,
)
_NUMBERED_AT_START = re.compile(r"\A(\d{1,9})(?=[.)](?:\s|\Z))")
_HASH_AT_END = re.compile(r"(?<!\\)#\Z")
_BACKTICKS = re.compile("`+")


def visible(text: str) -> str:
    r"""Return ``text`` with invisible characters as escapes: ``\x1b``, ``\u202e``, ``\n``.

    These are control characters, ANSI codes, direction overrides, unusual spaces and lone
    surrogates. A combining mark at the start is escaped, too: it would combine with the character
    before the text.
    """
    shown = text if text.isprintable() else "".join(map(_visible_character, text))
    if shown and unicodedata.category(shown[0]).startswith("M"):
        return _escape(shown[0]) + shown[1:]
    return shown


def _visible_character(character: str) -> str:
    return character if character.isprintable() else _escape(character)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shorten(text: str, limit: int = MAX_INLINE) -> str:
    """Return ``text``, or its start and end around the number of characters left out.

    A text slightly over the limit is not shortened: the remark would be as long as the cut.
    """
    if len(text) <= limit + 25:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]} …{len(text) - limit:,} characters… {text[-tail:]}"


def clip(text: str, limit: int) -> str:
    """Return ``text``, cut at its end after a whole word; within a word that is longer than half of the limit."""
    if len(text) <= limit:
        return text
    words = text[:limit].rpartition(" ")[0]
    cut = words if len(words) > limit // 2 else text[: limit - 1]
    return f"{cut.rstrip(' .,;:(…')}…"


def brief(text: str, limit: int) -> str:
    """Return ``text`` on one line, shortened before its last colon: the numbers after it stay."""
    text = " ".join(text.split())
    statement, colon, figures = text.rpartition(": ")
    if len(text) <= limit or not colon or len(figures) > limit * 2 // 3:
        return clip(text, limit)
    return f"{clip(statement, limit - len(figures) - 2)}: {figures}"


@lru_cache(CACHE_SIZE)
def prose(text: str, limit: int = 1000) -> Markdown:
    """Return ``text`` as running text on one line, escaped for every position in a line.

    A pipe is not escaped, because it matters only in a table, where
    :func:`samebits.text.blocks.table` escapes it.
    """
    escaped = shorten(visible(" ".join(text.split())), limit)
    escaped = _ALWAYS_SPECIAL.sub(r"\\\g<0>", escaped)
    escaped = _UNDERSCORES.sub(lambda run: run[0].replace("_", r"\_"), escaped)
    escaped = _SPECIAL_AT_START.sub(r"\\\g<0>", escaped)
    escaped = _NUMBERED_AT_START.sub(r"\1\\", escaped)
    return Markdown(_HASH_AT_END.sub(r"\#", escaped))


@lru_cache(CACHE_SIZE)
def code(text: str, limit: int = MAX_INLINE) -> Markdown:
    """Return ``text`` as a code span, fenced so that no backtick in it ends the span."""
    content = shorten(visible(text), limit)
    if not content or content != content.strip():
        content = f"'{content}'"
    fence = "`" * (longest_backticks(content) + 1)
    pad = " " if content.startswith("`") or content.endswith("`") else ""
    return Markdown(f"{fence}{pad}{content}{pad}{fence}")


def longest_backticks(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


def html_text(text: str) -> str:
    """Return ``text`` escaped for HTML; it wraps inside a tag, so its limit is twice as long."""
    return html.escape(shorten(visible(text), 2 * MAX_INLINE))


def fill(template: LiteralString, *values: object) -> Markdown:
    """Return the trusted ``template`` with escaped values in its ``{}``."""
    return Markdown(template.format(*map(markdown, values)))


def markdown(value: object) -> Markdown:
    """Return ``value`` unchanged if it is markdown, else as running text."""
    return value if isinstance(value, Markdown) else prose(str(value))


def join(parts: Iterable[str], separator: LiteralString = ", ") -> Markdown:
    """Join the parts; those that are not markdown become running text."""
    return Markdown(separator.join(map(markdown, parts)))
