"""Pairs of captures in which a phase failed or did not finish."""

import re

from samebits.records.capture import Failure, Unfinished
from tests.support.builders import sound, with_signals

LATE = Unfinished(phase="greedy short", reason="no progress for 120 s", step="forward 3 of 12")


BEHIND = Unfinished(phase="relations", reason="no progress for 120 s", step="forward 31 of 350")


def without_seconds(reason):
    """Return a reason without how long it took: a busy machine looks later than the limit."""
    return re.sub(r"no progress for \d+ s", "no progress for N s", reason)


def raised(phase="greedy short", type="ValueError", message="no start token"):
    return Failure(phase=phase, type=type, message=message, traceback="")


def ended(run, at=LATE, **signals):
    """Return a run as it is left where it ended in a phase, without what it then lacks."""
    update = {"status": "unfinished", "unfinished": at}
    return with_signals(run, **signals).model_copy(update=update)


def raising(run, *failures, **signals):
    """Return a complete run of which phases raised, without what they then lack."""
    return with_signals(run, **({"greedy": {}} | signals)).model_copy(update={"failures": failures})


def both(memory, stack="5.0", **changed):
    return sound(memory, stack, **changed), sound(memory, stack, run="b", **changed)
