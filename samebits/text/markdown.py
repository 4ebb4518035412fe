"""Text that stays text: names, messages and tokens that can never become markup.

Everything in a report that samebits did not write itself passes through :func:`prose`,
:func:`code` or :func:`html_text`; the type :class:`Markdown` says that it did.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDEST = 100
"""Characters after which a text inside a line is shortened in its middle."""


REMEMBERED = 1 << 14
"""Texts whose markdown is kept: a report says the same names and figures thousands of times."""


class Markdown(str):
    """Text that is safe to stand in a report as it is; a plain ``str`` is not."""

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
    r"""Return ``text`` with what cannot be seen written out: ``\x1b``, ``\u202e``, ``\n``.

    This covers control characters, ANSI codes, direction overrides, unusual spaces and lone
    surrogates. A combining mark in front has nothing of its own text to sit on, so it too.
    """
    shown = text if text.isprintable() else "".join(map(_visible_character, text))
    if shown and unicodedata.category(shown[0]).startswith("M"):
        return _written_out(shown[0]) + shown[1:]
    return shown


def _visible_character(character: str) -> str:
    return character if character.isprintable() else _written_out(character)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shorten(text: str, limit: int = WIDEST) -> str:
    """Return ``text``, or its two ends around the number of characters left out.

    What is a little over the limit stays whole: the remark would take as much room.
    """
    if len(text) <= limit + 25:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]} …{len(text) - limit:,} characters… {text[-tail:]}"


def clip(text: str, limit: int) -> str:
    """Return ``text``, cut at its end."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def brief(text: str, limit: int) -> str:
    """Return ``text`` on one line, cut where it hurts least: its figures, at the end, stay."""
    text = " ".join(text.split())
    said, colon, figures = text.rpartition(": ")
    if len(text) <= limit or not colon or len(figures) > limit * 2 // 3:
        return clip(text, limit)
    return f"{clip(said, limit - len(figures) - 2)}: {figures}"


@lru_cache(REMEMBERED)
def prose(text: str, limit: int = 1000) -> Markdown:
    """Return ``text`` as running text on one line, wherever in the line it will stand.

    A pipe is left alone, because only a table minds it, and :func:`samebits.text.blocks.table`
    escapes it there.
    """
    shown = shorten(visible(" ".join(text.split())), limit)
    shown = _ALWAYS_SPECIAL.sub(r"\\\g<0>", shown)
    shown = _UNDERSCORES.sub(lambda run: run[0].replace("_", r"\_"), shown)
    shown = _SPECIAL_AT_START.sub(r"\\\g<0>", shown)
    shown = _NUMBERED_AT_START.sub(r"\1\\", shown)
    return Markdown(_HASH_AT_END.sub(r"\#", shown))


@lru_cache(REMEMBERED)
def code(text: str, limit: int = WIDEST) -> Markdown:
    """Return ``text`` as a code span that it cannot leave."""
    shown = shorten(visible(text), limit)
    if not shown or shown != shown.strip():
        shown = f"'{shown}'"
    fence = "`" * (longest_backticks(shown) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return Markdown(f"{fence}{pad}{shown}{pad}{fence}")


def longest_backticks(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)


def html_text(text: str) -> str:
    """Return ``text`` as it may stand inside an HTML tag; it wraps there, so it may be longer."""
    return html.escape(shorten(visible(text), 2 * WIDEST))


def fill(template: LiteralString, *values: object) -> Markdown:
    """Return ``template``, which is trusted, with values in its ``{}``, which are not."""
    return Markdown(template.format(*map(markdown, values)))


def markdown(value: object) -> Markdown:
    """Return ``value`` as it is if it is markdown, else as running text."""
    return value if isinstance(value, Markdown) else prose(str(value))


def join(parts: Iterable[str], separator: LiteralString = ", ") -> Markdown:
    """Return the parts side by side; those that are not markdown become running text."""
    return Markdown(separator.join(map(markdown, parts)))
