"""Markdown of our own sections as HTML, so that each section is written once.

A section is CommonMark with tables and folded parts, and all text in it that is not samebits' own is
escaped (samebits/text/markdown.py). Raw HTML other than a folded part is shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from samebits.base.finding_pages import CODE_NAME
from samebits.text.markdown import Markdown, visible

_FOLD = re.compile(r"<details>\n<summary>[^<>]*</summary>\n?|</details>\n?")
"""What samebits.text.blocks.details writes around the blocks of a folded part."""
_WEB = re.compile(r"https?://")
_TABLE = '<div class="scroll" tabindex="0" role="group" aria-label="Table">\n'


def with_code(text: str) -> Markup:
    """Return the text of a rule, or another plain one, with names of code set as code."""
    parts = (
        Markup("<code>{}</code>").format(visible(part.strip("`")))
        if i % 2
        else escape(_shown(part))
        for i, part in enumerate(CODE_NAME.split(text))
    )
    return Markup("").join(parts)


def _shown(part: str) -> str:
    return visible(part) if part else part


def rendered(section: Markdown, address: Callable[[str], str]) -> Markup:
    """Return a section as HTML, with its headings as they are.

    ``address`` returns where a link to another page of the report leads, '' for nowhere.
    """
    parser = _parser()
    tokens = list(_tokens(parser.parse(section), address))
    return Markup(parser.renderer.render(tokens, parser.options, {}))


@lru_cache(1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True}).enable("table")


def _tokens(tokens: Iterable[Token], address: Callable[[str], str]) -> Iterator[Token]:
    """Yield tokens as our pages have them: without styles, which their policy forbids."""
    tokens = list(tokens)
    _demote_empty_heads(tokens)
    for token in tokens:
        token.attrs.pop("style", None)
        if token.type == "table_open":
            token.attrSet("class", "data")
            yield _raw(_TABLE)
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        elif token.type == "fence":
            yield _raw(f'<pre tabindex="0">{escape(token.content)}</pre>\n')
            continue
        elif token.type in ("html_block", "html_inline") and not _FOLD.fullmatch(token.content):
            token.content = str(escape(token.content))
        elif token.type == "link_open":
            _lead(token, address)
        if token.children:
            token.children = list(_tokens(token.children, address))
        yield token
        if token.type == "table_close":
            yield _raw("</div>\n")


def _demote_empty_heads(tokens: list[Token]) -> None:
    """Make a cell of a table's head that says nothing a plain cell: it is the head of no column."""
    for opening, content, closing in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if opening.type == "th_open" and not content.content:
            opening.type, closing.type = "td_open", "td_close"
            opening.tag = closing.tag = "td"


def _raw(html: str) -> Token:
    return Token("html_block", "", 0, content=html)


def _lead(link: Token, address: Callable[[str], str]) -> None:
    """Let a link lead to the page that takes the place of its target, or nowhere."""
    target = str(link.attrGet("href") or "")
    if _WEB.match(target):
        link.attrSet("rel", "noreferrer noopener")
    elif target := address(target):
        link.attrSet("href", target)
    else:
        link.attrs.pop("href", None)
