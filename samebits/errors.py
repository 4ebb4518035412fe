"""What can go wrong by a user's hand, and the exit code of each.

A message says what happened, what it usually means and what to change. The command line
catches :class:`SamebitsError` alone and prints it without a traceback; anything else that
escapes is a defect of samebits.
"""


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


class CaptureError(SamebitsError):
    """A file that a probe left is missing, torn or not of this format version."""

    exit_code = 1
