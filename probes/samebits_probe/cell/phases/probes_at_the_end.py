"""Phase ``probes at the end``: the user's probes in this process, where no child can be forked."""

from __future__ import annotations

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.phases import probes
from samebits_probe.cell.session import Session


def observe(session: Session) -> None:
    """Run the probes on a newly loaded model, as prompts may have changed the first."""
    if not session.probes_at_the_end:
        return
    counts = any(file["verdict"] for file in probes.ordered(session))
    session.begin("probe" if counts else probes.NAME)
    with session.instrument(probes.NAME):
        model = session.untouched_model("probes", session.too_large() or session.no_room(1))
        seconds = session.seconds_left
        answers = probes.answers(session, model, seconds, lambda _file, _function, run: run())
        session.signals[probes.NAME] = answers


PHASE = Phase("probes at the end", 100, observe)
