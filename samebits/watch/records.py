"""What the watch keeps from one night to the next, as its file has it."""

from __future__ import annotations

from typing import Literal

from samebits.records.record import Record

Kind = Literal["differs", "raises", "absent", "watch"]
"""differs: other numbers than rounding gives. raises: it raises, and the release does not. absent: main no longer has
the model. watch: the watch itself could not look at some models."""


class KnownCause(Record):
    """A cause that an earlier night showed."""

    id: str
    """Digest of its signs when it was opened."""
    kind: Kind
    signs: tuple[str, ...] = ()
    """What tells it from others: where it begins, and which lines changed. One in common is enough."""
    models: tuple[str, ...] = ()
    since: str = ""
    """The commit of the night that showed it first."""
    reference: str = ""
    """The release that it was first seen against."""
    number: int | None = None
    """Its issue; None if there is none yet, or nowhere."""
    decided: bool = False
    """Whether somebody closed its issue as not planned: no other one is opened."""


class WatchFile(Record):
    """The causes that are open after a night: ``watch.json``."""

    format: Literal["samebits-watch"] = "samebits-watch"
    format_version: Literal[1] = 1
    commit: str = ""
    """The commit of the last night in which models ran; '' if there was none."""
    reference: str = ""
    """The release of that night."""
    causes: tuple[KnownCause, ...] = ()
