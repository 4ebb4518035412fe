"""Text for a terminal, with secrets redacted and control characters escaped.

Every line that samebits prints goes through here: progress, errors, the summary, and the traceback
of an internal error. Lines that a receipt prints again went through here when it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self, TextIO

from samebits.base import streams
from samebits.base.redaction import Redaction
from samebits.base.workflow import inert
from samebits.text.markdown import visible


class Mark(StrEnum):
    """How a verdict is marked on a terminal."""

    SAME = "✓"
    CLOSE = "≈"
    WORSE = "✕"


_COLOURS = {Mark.SAME: "32", Mark.CLOSE: "33", Mark.WORSE: "31"}
"""Mark -> the number of its colour in an escape sequence."""


class Marked(str):
    """A line that a terminal shows with a mark, bold and in the mark's colour."""

    __slots__ = ("mark",)
    mark: Mark

    def __new__(cls, text: str, mark: Mark) -> Self:
        """Return the line; its mark is no part of the text."""
        line = super().__new__(cls, text)
        line.mark = mark
        return line


class TerminalText:
    """Redacts the secrets of one environment and escapes control characters."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._redaction = Redaction(environ)
        self._is_workflow = environ.get("GITHUB_ACTIONS") == "true"
        self._is_plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"

    def text(self, text: str) -> str:
        """Return one line, redacted and escaped."""
        return visible(self._redaction.text(text))

    def log_line(self, text: str) -> str:
        """Return one line that a log of GitHub Actions does not take for a command."""
        line = self.text(text)
        line = inert(line) if self._is_workflow else line
        return Marked(line, text.mark) if isinstance(text, Marked) else line

    def command(self, line: str, stream: TextIO) -> None:
        """Write a workflow command, which :func:`samebits.base.workflow.annotation` has escaped."""
        self._write(self.text(line), stream)

    def lines(self, text: str) -> str:
        """Return several lines; they are redacted first, as a secret may contain a line feed."""
        redacted = self._redaction.text(text)
        lines = map(visible, redacted.split("\n"))
        return "\n".join(map(inert, lines) if self._is_workflow else lines)

    def say(self, text: str, stream: TextIO) -> None:
        """Write one or more lines, with characters replaced that the stream cannot encode."""
        lines = self.lines(text)
        if isinstance(text, Marked) and stream.isatty():
            lines = self._marked(lines, text.mark)
        self._write(lines, stream)

    def _marked(self, line: str, mark: Mark) -> str:
        """Return a line with its mark, in colour unless NO_COLOR or a dumb terminal forbids it."""
        marked = f"{mark} {line}"
        return marked if self._is_plain else f"\x1b[1;{_COLOURS[mark]}m{marked}\x1b[0m"

    def _write(self, text: str, stream: TextIO) -> None:
        encoding = stream.encoding or "ascii"
        streams.write(stream, text.encode(encoding, "replace").decode(encoding) + "\n")


PLAIN = TerminalText({})
"""For lines that cannot contain secrets."""
