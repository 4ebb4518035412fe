"""What ``samebits verify`` found: the current environment compared with a lock."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from samebits.records.capture import Failure
from samebits.records.ids import Signal
from samebits.records.lock import Environment, RecordedMachine
from samebits.records.record import Record
from samebits.records.subject import Subject

FORMAT_VERSION: Literal[2] = 2
# History: 1: first. 2: phases that raise as recorded.


class Kept(StrEnum):
    """The verdict on a recorded model."""

    IDENTICAL = "identical"
    ROUNDING = "rounding"
    OTHER_MACHINE = "other machine"
    """The recorded packages compute the same bits here; the recorded bits are another machine's."""
    DIVERGED = "diverged"
    UNDECIDED = "undecided"
    UNSTABLE = "unstable"
    FAILED = "failed"
    ABSENT = "absent"
    """This release does not have the model."""
    NOT_FINISHED = "not finished"
    NOT_OBSERVED = "not observed"
    """Something that was recorded could not be observed, and what could be is identical."""
    NOT_THERE = "not there"
    """The recorded folder does not exist."""

    @property
    def passes(self) -> bool:
        """True if the bits were kept, as far as this machine can tell."""
        return self in _PASSING

    @property
    def is_open(self) -> bool:
        """True if nothing fails, and something was not compared."""
        return self in _OPEN


_PASSING = frozenset({Kept.IDENTICAL, Kept.ROUNDING, Kept.OTHER_MACHINE})
_OPEN = frozenset({Kept.NOT_FINISHED, Kept.NOT_OBSERVED, Kept.NOT_THERE})


class Mismatch(Record):
    """A recorded observation that is not the same now."""

    signal: Signal
    subject: Subject | None = None
    """None if it is only in the record, which has the name alone."""
    name: str
    kind: Literal["differs", "only recorded", "only here"]


class PackageChange(Record):
    """A package that is not the recorded one; None: it is not there on that side."""

    name: str
    recorded: str | None
    current: str | None


Rebuild = Literal["not needed", "left out", "not possible", "done"]
"""Whether the recorded side was computed again on this machine."""


class Verified(Record):
    """One recorded model, compared with the current environment."""

    model: str
    """Model and variant, as in the lock."""
    verdict: Kept
    n_tensors: int = 0
    """Number of recorded observations."""
    n_differ: int = 0
    first: Mismatch | None = None
    """The first recorded observation that is not the same, in the order of the flow of data."""
    difference: str = ""
    """The difference that decides, in numbers, from both sides on this machine."""
    figure: str = ""
    """The largest difference."""
    packages: tuple[PackageChange, ...] = ()
    """transformers and torch first."""
    files: tuple[str, ...] = ()
    """Files of the checkpoint that have changed."""
    other_machine: bool = False
    """True if another machine, or another setting of its kernels, made the record."""
    other_probes: bool = False
    """True if another version of samebits made the record."""
    rebuild: Rebuild = "not needed"
    repeats: bool | None = None
    """Whether the rebuilt side computes the recorded bits; None if it was not rebuilt."""
    reason: str = ""
    """Why it is undecided, failed, open …"""
    failure: Failure | None = None
    raised: dict[str, str] = Field(default_factory=dict)
    """Phase that raises as it did in the record, so that nothing of it is compared -> type of its exception."""
    command: str = ""
    """The command that compares both releases in full."""


class VerificationFile(Record):
    """What ``samebits verify --format json`` prints."""

    format: Literal["samebits-verification"] = "samebits-verification"
    format_version: Literal[2] = FORMAT_VERSION
    lock: str
    environment: Environment
    machine: RecordedMachine
    models: tuple[Verified, ...]
    seconds: float
    exit_code: int
