"""Phase ``usage``: what users do around the model, in a child with the untouched model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits_probe.cell.phase import Phase
from samebits_probe.model import load
from samebits_probe.usage import usage

if TYPE_CHECKING:
    from samebits_probe.cell.phase import InFork
    from samebits_probe.cell.session import Session

_FORWARDS = 60
"""Cost of the phase, in plain forwards."""


def observe(session: Session) -> None:
    """Run the checks in the forked child, if time and memory allow it."""
    if "usage" not in session.model_forks:
        return
    if reason := session.no_room(1) or session.no_time(_FORWARDS):
        session.skip("usage", reason, "cost")
        session.model_forks.pop("usage").forget()
        return
    session.begin("usage")
    session.run_in_fork("usage", str(session.seconds_left))


def untouched(session: Session) -> InFork | None:
    """Return the checks; None if the job does not request them, or the model is too large."""
    if not session.job["model"].get("usage"):
        return None
    size = load.n_bytes(session.loaded.model)
    if size > usage.MAX_BYTES and not session.job["model"].get("large"):
        reason = f"thirty forwards and a save of {size / 2**30:.1f} GiB would take too long"
        session.skip("usage", reason, "cost")
        return None
    return lambda saved, argument: usage.usage(session.loaded, saved, float(argument))


PHASE = Phase("usage", 80, observe, untouched, needs_grad=True)
