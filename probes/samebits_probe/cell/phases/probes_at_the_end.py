"""Phase ``probes at the end``: the user's probes in this process, where no child can be forked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.phases import probes

if TYPE_CHECKING:
    from samebits_probe.cell.session import Session
    from samebits_wire.jobs import ProbeFile


def observe(session: Session) -> None:
    """Run the probes on a newly loaded model, as prompts may have changed the first."""
    if not session.probes_at_the_end:
        return
    counts = any(file["verdict"] for file in probes.ordered(session))
    session.begin("probe" if counts else probes.NAME)
    with session.instrument(probes.NAME):
        model = session.untouched_model("probes", session.too_large() or session.no_room(1))
        seconds = session.seconds_left
        session.signals[probes.NAME] = probes.answers(session, model, seconds, _here)


def _here(_: ProbeFile, __: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return run()


PHASE = Phase("probes at the end", 100, observe)
