"""Text for a terminal, with secrets redacted and control characters escaped.

Every line that samebits prints goes through here: progress, errors, the summary, and the traceback
of an internal error. Lines that a receipt prints again went through here when it was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.base import streams
from samebits.base.redaction import Redaction
from samebits.base.workflow import inert
from samebits.text.markdown import visible

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO


class TerminalText:
    """Redacts the secrets of one environment and escapes control characters."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._redaction = Redaction(environ)
        self._is_workflow = environ.get("GITHUB_ACTIONS") == "true"

    def text(self, text: str) -> str:
        """Return one line, redacted and escaped."""
        return visible(self._redaction.text(text))

    def log_line(self, text: str) -> str:
        """Return one line that a log of GitHub Actions does not take for a command."""
        line = self.text(text)
        return inert(line) if self._is_workflow else line

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
        self._write(self.lines(text), stream)

    def _write(self, text: str, stream: TextIO) -> None:
        encoding = stream.encoding or "ascii"
        streams.write(stream, text.encode(encoding, "replace").decode(encoding) + "\n")


PLAIN = TerminalText({})
"""For lines that cannot contain secrets."""
