"""What jobs leave in files, and whether a later run may read it in place of a new one."""

from __future__ import annotations

from pydantic import Field

from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.records.capture import Failure
from samebits.records.ids import CellId
from samebits.records.record import Record


def is_repeatable(failure: Failure | None) -> bool:
    """Return True if another run of a job that ended so would end in the same way."""
    return failure is None or not failure.may_be_the_machine


class JobFile(Record):
    """The file of a job."""

    @property
    def is_repeatable(self) -> bool:
        """True if another run of the same job would leave the same."""
        return True


class CellFile(JobFile):
    """The file of a job of one cell."""

    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    cell: CellId
    failure: Failure | None = None
    """The exception that ended the job; None if there was none."""
    entered: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """File of transformers -> first lines of the functions that the job entered, in order; empty for a
    kind that asks nothing beside what the cell's capture has."""

    @property
    def is_repeatable(self) -> bool:
        """True unless the machine may be the reason of its failure."""
        return is_repeatable(self.failure)
