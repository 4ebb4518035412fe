"""Text for a terminal, with secrets redacted and control characters escaped.

Every line that samebits prints goes through here: progress, errors, the summary, and the traceback
of an internal error. Lines that a receipt prints again went through here when it was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.base.redaction import Redaction
from samebits.text.markdown import visible

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO


class TerminalText:
    """Redacts the secrets of one environment and escapes control characters."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._redaction = Redaction(environ)

    def text(self, text: str) -> str:
        """Return one line, redacted and escaped."""
        return visible(self._redaction.text(text))

    def lines(self, text: str) -> str:
        """Return several lines; they are redacted first, as a secret may contain a line feed."""
        return "\n".join(map(visible, self._redaction.text(text).split("\n")))

    def say(self, text: str, stream: TextIO) -> None:
        """Write one or more lines, with characters replaced that the stream cannot encode."""
        encoding = stream.encoding or "ascii"
        stream.write(self.lines(text).encode(encoding, "replace").decode(encoding) + "\n")


PLAIN = TerminalText({})
"""For lines that cannot contain secrets."""
