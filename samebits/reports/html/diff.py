"""Source text with syntax colours, as classes that the style sheet knows."""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from samebits.text.markdown import visible

_SIGNS = {"+": "added", "-": "removed", "@": "place"}


@lru_cache(2048)
def source_diff(text: str) -> Markup:
    """Return a unified diff of Python code: a class for each line, and one for each token."""
    lines = text.splitlines()
    signs = [line[:1] for line in lines]
    bodies = [line if sign == "@" else line[1:] for sign, line in zip(signs, lines, strict=True)]
    colored = _colored("\n".join(map(_visible, bodies))).split("\n")
    if len(colored) < len(lines):  # the lexer dropped lines: no colours then
        colored = [str(escape(_visible(body))) for body in bodies]
    pieces = (
        f'<span class="line {_SIGNS.get(sign, "same")}">'
        f'<span class="sign">{sign if sign in "+-" else " "}</span>{body}\n</span>'
        for sign, body in zip(signs, colored, strict=False)
    )
    return Markup("".join(pieces))


def python(text: str) -> Markup:
    """Return Python code with a class for each token."""
    return Markup(_colored("\n".join(map(_visible, text.splitlines()))))


@lru_cache(2048)
def _colored(text: str) -> str:
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    formatter = HtmlFormatter(nowrap=True)
    # a token over many lines has one span for each line, so that every line is whole
    return str(highlight(text, lexer, formatter))


def _visible(line: str) -> str:
    return visible(line.expandtabs(4)) if line else line
