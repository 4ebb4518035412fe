"""Errors that a user can cause or fix, each with its exit code, and the wording of messages.

A message says what happened, what it usually means and what to change. The command line
prints a :class:`SamebitsError` without a traceback. Any other exception that escapes is a
defect of samebits, except OSError, which becomes a :class:`MachineError`.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable

MACHINE_ERRORS = frozenset(
    {
        errno.EAGAIN,
        errno.EFBIG,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
        getattr(errno, "EDQUOT", errno.ENOSPC),
    }
)
"""Numbers of an OSError that blame memory, a disk or a limit of the kernel, and no file."""
OF_THE_MACHINE = re.compile(rf"OSError: \[Errno (?:{'|'.join(map(str, sorted(MACHINE_ERRORS)))})\]")
"""An exception in words that has one of these numbers."""
EXIT_INTERRUPTED = 130
INTERRUPTED = "interrupted; run the same command again to continue"


class SamebitsError(Exception):
    """Base of every error that a user can cause or fix."""

    exit_code = 2


class MatrixError(SamebitsError):
    """matrix.yaml has problems; all of them are in :attr:`problems`, in file order."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class SelectionError(SamebitsError):
    """The command line selects nothing, or names something that the matrix does not have."""


class OptionError(SamebitsError):
    """The value of an option does not exist."""


class StackError(SamebitsError):
    """A stack could not be resolved or built. The other stacks continue."""

    exit_code = 1
    machine = False
    """True if the machine is the reason: then its cells are not finished, instead of failed."""


class StackMachineError(StackError):
    """The machine did not let a stack be built: no memory, no room, or no way to start uv."""

    machine = True


class PatchError(SamebitsError):
    """A patch cannot be read or does not apply. The message names the file and the hunk."""


class CaptureError(SamebitsError):
    """A file that a probe wrote is missing, truncated or of another format version."""

    exit_code = 1


class MachineError(SamebitsError):
    """The machine failed an operation: the disk is full, or a folder is not writable.

    That is no result of a model, so the exit code is that of a run with cells that are not finished.
    """

    exit_code = 3

    def __init__(self, error: OSError) -> None:
        where = f": {error.filename}" if error.filename else ""
        reason = error.strerror or str(error)
        super().__init__(
            f"Not finished: {reason}{where}\n"
            "Fix this, then run the same command again: it continues where it stopped."
        )


def shown(text: str) -> str:
    """Return text in quotes on one line, with control characters and markup escaped."""
    shortened = text if len(text) <= 60 else f"{text[:59]}…"
    return '"' + "".join(map(_escaped, shortened)) + '"'


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the end of a message: the name that was likely meant, or the possible names."""
    by_folded = {name[:80].casefold(): name for name in names}
    matches = difflib.get_close_matches(word[:80].strip("*?").casefold(), by_folded, n=1)
    if matches:
        return f"did you mean {shown(by_folded[matches[0]])}?"
    if not by_folded:
        return "there is none"
    choices = ", ".join(map(shown, list(by_folded.values())[:12]))
    return f"choose from {choices}{' …' if len(by_folded) > 12 else ''}"


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character == "<":
        return "\\x3c"
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
