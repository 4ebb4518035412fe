"""The building blocks of report.md: headings, links, lists, tables, fences, folded parts.

A block is :class:`~samebits.text.markdown.Markdown` without blank lines around it;
:func:`page` puts blank lines between them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from tabulate import tabulate

from samebits.text.markdown import (
    EMPTY,
    Markdown,
    code,
    fill,
    html_text,
    join,
    longest_backticks,
    markdown,
    prose,
    shorten,
    visible,
)
from samebits.text.numbers import count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

LONGEST_FENCE = 120
"""Lines after which a fenced text is shortened in its middle."""

WIDEST = 160
"""Characters of a row up to which the columns of a long table are padded."""
MANY = 20
"""Rows up to which the columns of every table are."""

_SAFE_URL = re.compile(r"https?://[A-Za-z0-9./_?=%:+~#&;,@-]+")
_PADDING_AT_END = re.compile(r" +\|$", re.MULTILINE)
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


def page(blocks: Iterable[Markdown]) -> Markdown:
    """Return the blocks that hold something, one under the other."""
    return Markdown("\n\n".join(block for block in blocks if block))


def heading(level: int, text: str) -> Markdown:
    """Return a heading; ``text`` is plain unless it is markdown."""
    return Markdown(f"{'#' * level} {markdown(text)}")


def slug(text: str) -> str:
    """Return the anchor that GitHub gives to a heading with this plain text."""
    return _NOT_IN_SLUG.sub("", text.lower()).replace(" ", "-")


def link(label: str, target: str) -> Markdown:
    """Return a link to a path or an anchor of the report."""
    return Markdown(f"[{markdown(label)}]({quote(target, safe='/#.-_~')})")


def linked(text: str) -> Markdown:
    """Return running text whose web addresses are links."""
    return join((_web_link(word) for word in text.split()), " ")


def _web_link(word: str) -> Markdown:
    return Markdown(f"<{word}>") if _SAFE_URL.fullmatch(word) else prose(word)


def bullets(items: Iterable[str]) -> Markdown:
    """Return a list; items that are not markdown become running text."""
    return Markdown("\n".join(f"- {markdown(item)}" for item in items))


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()
) -> Markdown:
    """Return a table without the columns that would be empty; ``right`` names number columns.

    A last column of words is not padded, so one long cell there does not widen all the others. A
    long table that no screen shows without a break has no padding at all: in a large report that would be
    a quarter of the file.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    kept = [i for i in range(len(headers)) if any(row[i] for row in cells)]
    if not kept:
        return EMPTY
    widths = [max(len(row[i]) for row in cells) for i in kept]
    if len(cells) > MANY and sum(widths) > WIDEST:
        return _unpadded(
            [_cell(headers[i]) for i in kept],
            [[r[i] for i in kept] for r in cells],
            [headers[i] in right for i in kept],
        )
    drawn = tabulate(
        [[row[i] for i in kept] for row in cells],
        headers=[_cell(headers[i]) for i in kept],
        tablefmt="pipe",
        colalign=["right" if headers[i] in right else "left" for i in kept],
        disable_numparse=True,
    )
    return Markdown(drawn if headers[kept[-1]] in right else _PADDING_AT_END.sub(" |", drawn))


def _unpadded(headers: list[str], rows: list[list[str]], is_right: list[bool]) -> Markdown:
    rule = ["---:" if right else ":---" for right in is_right]
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (headers, rule, *rows)))


def _cell(content: str) -> str:
    return markdown(content).replace("|", r"\|")


def fence(text: str, language: str = "text") -> Markdown:
    """Return a fenced block that its text cannot leave, shortened in the middle if very long."""
    lines = [shorten(_visible_line(line), 400) for line in text.strip("\r\n").split("\n")]
    body = "\n".join(_middle_left_out(lines))
    marks = "`" * max(3, longest_backticks(body) + 1)
    return Markdown(f"{marks}{language}\n{body}\n{marks}")


def _visible_line(line: str) -> str:
    return visible(line.removesuffix("\r").expandtabs(4))


def _middle_left_out(lines: list[str]) -> list[str]:
    if len(lines) <= LONGEST_FENCE:
        return lines
    half = LONGEST_FENCE // 2
    return [*lines[:half], f"… {count(len(lines) - 2 * half)} lines …", *lines[-half:]]


def details(summary: str, *blocks: Markdown) -> Markdown:
    """Return a part that is folded until the reader opens it."""
    return Markdown(
        f"<details>\n<summary>{html_text(summary)}</summary>\n\n{page(blocks)}\n\n</details>"
    )


def folded(summary: str, block: Markdown, longest: int = 14) -> Markdown:
    """Return ``block``, folded if it has more lines than one sees at a glance."""
    return (
        details(summary, block) if block.count("\n") >= longest else page([titled(summary), block])
    )


def titled(text: str) -> Markdown:
    """Return the title of a table or a list."""
    return fill("{}:", text)


def codes(names: Iterable[str], limit: int = 12) -> Markdown:
    """Return the names as code, the first few of them and how many more there are."""
    names = list(names)
    shown = join(map(code, names[:limit]))
    rest = len(names) - limit
    return fill("{} and {} more", shown, count(rest)) if rest > 0 else shown
