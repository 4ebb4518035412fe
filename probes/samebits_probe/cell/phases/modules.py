"""Phase ``modules``: the modules of the model that no prompt ran."""

from __future__ import annotations

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import unrun
from samebits_probe.model.leftover import Leftover
from samebits_probe.process import progress


def observe(session: Session) -> None:
    """Record the modules that were not called, and whose parameters no prompt's forward reads; in run a."""
    if session.calls is None:
        return
    session.calls.stop()
    names = session.calls.uncalled
    prompts = {name: inputs.kwargs for name, inputs in session.answered().items()}
    if not prompts:
        return  # it is said why
    if names:
        session.begin("modules")
        if session.leaves_out("modules", session.no_time(len(prompts))):
            return
        before = Leftover(session.loaded.model)
        with (
            session.instrument("modules"),
            progress.forwards(len(prompts), next(iter(prompts.values()))),
        ):
            names = unrun.unread(session.loaded.model, names, prompts.values())
            session.signals["unrun"] = unrun.facts(session.loaded.model, names)
        before.restore()
        return
    session.signals["unrun"] = []


PHASE = Phase("modules", 37, observe)
