"""What can go wrong by a user's hand, and the exit code of each.

A message says what happened, what it usually means and what to change. The command line
catches :class:`SamebitsError` alone and prints it without a traceback; anything else that
escapes is a defect of samebits.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class SamebitsError(Exception):
    """Base of every error that a user can cause or mend."""

    exit_code = 2


class MatrixError(SamebitsError):
    """matrix.yaml has problems; all of them are in :attr:`problems`, in file order."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class SelectionError(SamebitsError):
    """The command line selects nothing, or names something that the matrix does not have."""


class StackError(SamebitsError):
    """A stack could not be resolved or built; the others go on."""

    exit_code = 1


class PatchError(SamebitsError):
    """A patch of a checkpoint cannot be read or does not apply: which file of it, and which hunk."""


class CaptureError(SamebitsError):
    """A file that a probe left is missing, torn or not of this format version."""

    exit_code = 1


class MachineError(SamebitsError):
    """The machine refused something: its disk is full, a folder cannot be written."""

    exit_code = 1

    def __init__(self, error: OSError) -> None:
        where = f": {error.filename}" if error.filename else ""
        said = error.strerror or str(error)
        super().__init__(
            f"{said}{where}\nWhen that is mended, the same command goes on where it was."
        )


def shown(text: str) -> str:
    """Return text in quotes on one line, with all that a terminal or a page acts on escaped."""
    cut = text if len(text) <= 60 else f"{text[:59]}…"
    return '"' + "".join(map(_escaped, cut)) + '"'


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the end of a message: the name that was likely meant, or the names there are."""
    known = {name[:80].casefold(): name for name in names}
    close = difflib.get_close_matches(word[:80].strip("*?").casefold(), known, n=1)
    if close:
        return f"did you mean {shown(known[close[0]])}?"
    if not known:
        return "there is none"
    listed = ", ".join(map(shown, list(known.values())[:12]))
    return f"choose from {listed}{' …' if len(known) > 12 else ''}"


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character == "<":
        return "\\x3c"
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
