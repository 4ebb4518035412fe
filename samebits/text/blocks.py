"""Building blocks of report.md: headings, links, lists, tables, fences, folded parts.

A block is :class:`~samebits.text.markdown.Markdown` without blank lines around it.
:func:`page` joins blocks with blank lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
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

MAX_FENCE_LINES = 120
"""Number of lines above which a fenced text is shortened in its middle."""

MAX_PADDED_WIDTH = 160
"""Maximal width of a row in characters for which the columns of a long table are padded."""
MAX_SHORT_ROWS = 20
"""Number of rows above which a table is long; the columns of other tables are always padded."""

_SAFE_URL = re.compile(r"https?://[A-Za-z0-9./_?=%:+~#&;,@-]+")
_PADDING_AT_END = re.compile(r" +\|$", re.MULTILINE)
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


def page(blocks: Iterable[Markdown]) -> Markdown:
    """Return the non-empty blocks, separated by blank lines."""
    return Markdown("\n\n".join(block for block in blocks if block))


def below(title: Markdown, *blocks: Markdown) -> Markdown:
    """Return blocks under a title; empty if all of them are."""
    body = page(blocks)
    return page([title, body]) if body else EMPTY


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
    """Return a table without its empty columns; ``right`` names the right-aligned ones.

    A left-aligned last column is not padded, so one long cell there does not widen all rows. A long
    table that is too wide for a screen is not padded at all: in a large report, padding would be a
    quarter of the file.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    columns = [i for i in range(len(headers)) if any(row[i] for row in cells)]
    if not columns:
        return EMPTY
    widths = [max(len(row[i]) for row in cells) for i in columns]
    if len(cells) > MAX_SHORT_ROWS and sum(widths) > MAX_PADDED_WIDTH:
        return _unpadded(
            [_cell(headers[i]) for i in columns],
            [[r[i] for i in columns] for r in cells],
            [headers[i] in right for i in columns],
        )
    text = tabulate(
        [[row[i] for i in columns] for row in cells],
        headers=[_cell(headers[i]) for i in columns],
        tablefmt="pipe",
        colalign=["right" if headers[i] in right else "left" for i in columns],
        disable_numparse=True,
    )
    return Markdown(text if headers[columns[-1]] in right else _PADDING_AT_END.sub(" |", text))


def _unpadded(headers: list[str], rows: list[list[str]], is_right: list[bool]) -> Markdown:
    separator = ["---:" if right else ":---" for right in is_right]
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (headers, separator, *rows)))


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
    if len(lines) <= MAX_FENCE_LINES:
        return lines
    half = MAX_FENCE_LINES // 2
    return [*lines[:half], f"… {count(len(lines) - 2 * half)} lines …", *lines[-half:]]


def cut(block: Markdown, limit: int, more: Markdown) -> Markdown:
    """Return a block in at most ``limit`` characters, ended by ``more`` if something is left out.

    It is cut between two paragraphs that are neither fenced nor folded, or between two rows of a table, whose
    folds are closed; and no earlier than after the first paragraph, which is a heading in most blocks.
    """
    if len(block) <= limit:
        return block
    end = position = n_table = depth = n_open = 0
    marks = ""
    for line in block.split("\n"):
        if not marks:
            n_table = n_table + 1 if line.startswith("|") else 0
            if n_table > _HEAD_ROWS + 1 or not (line or depth):
                if end and position > limit - len(more) - 2:
                    break
                end, n_open = position, depth
        marks = _fence_after(line, marks)
        if not marks:
            depth += line.startswith("<details>") - line.startswith("</details>")
        position += len(line) + 1
    closed = [Markdown("</details>")] * n_open
    return page([Markdown(block[:end].rstrip("\n")), *closed, more]) if end else block


_HEAD_ROWS = 2
"""Lines of a table that are no rows of it: its headers, and the line below them."""


def _fence_after(line: str, marks: str) -> str:
    """Return the marks of the fence that is open after a line; '' if none is."""
    if marks:
        return "" if line == marks else marks
    opening = re.match("`{3,}", line)
    return opening[0] if opening else ""


def details(summary: str, *blocks: Markdown) -> Markdown:
    """Return blocks that are folded until the reader opens them."""
    return Markdown(
        f"<details>\n<summary>{html_text(summary)}</summary>\n\n{page(blocks)}\n\n</details>"
    )


def folded(summary: str, block: Markdown, longest: int = 14) -> Markdown:
    """Return ``block`` under a title, folded if it has more than ``longest`` lines."""
    return (
        details(summary, block) if block.count("\n") >= longest else page([titled(summary), block])
    )


def titled(text: str) -> Markdown:
    """Return the title of a table or a list."""
    return fill("{}:", text)


def codes(names: Iterable[str], limit: int = 12) -> Markdown:
    """Return the first names as code spans, and the number of those left out."""
    return first_of([*map(code, names)], limit)


def first_of(names: Sequence[str], limit: int) -> Markdown:
    """Return the first names, and the number of those left out."""
    shown = join(names[:limit])
    n_more = len(names) - limit
    return fill("{} and {} more", shown, count(n_more)) if n_more > 0 else shown
