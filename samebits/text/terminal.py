"""What may a terminal be told: no secret of its user, and nothing that sets it.

Every line that samebits prints goes through here: progress, errors, the summary, and the traceback
of a defect. What a receipt prints again went through here when it was left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.base.redaction import Redaction
from samebits.text.markdown import visible

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO


class Spoken:
    """Takes what one environment holds of secrets, and control characters, out of lines."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._redaction = Redaction(environ)

    def text(self, text: str) -> str:
        """Return one line as it may be shown."""
        return visible(self._redaction.text(text))

    def lines(self, text: str) -> str:
        """Return several, redacted before they are parted: a secret may go over a line's end."""
        return "\n".join(map(visible, self._redaction.text(text).split("\n")))

    def say(self, text: str, stream: TextIO) -> None:
        """Write a line, or several, in what characters the stream has."""
        encoding = stream.encoding or "ascii"
        stream.write(self.lines(text).encode(encoding, "replace").decode(encoding) + "\n")


NOBODY = Spoken({})
"""For lines in which nobody's secrets can be."""
