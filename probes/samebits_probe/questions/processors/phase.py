"""Phase ``processors``: what the model's processors make of seeded images, videos and sounds."""

from __future__ import annotations

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.process.quiet import undisturbed
from samebits_probe.questions.processors import processors


def observe(session: Session) -> None:
    """Observe the processors that the checkpoint's files declare."""
    if session.options("processors") is None:
        return
    session.begin("processors")
    with session.instrument("processors"):
        with undisturbed():  # there would be a warning for each case
            facts = processors.facts(session.source)
        if facts is not None:
            session.answer("processors", facts)


PHASE = Phase("processors", 85, observe, needs_grad=True, without_model=True, without_load=True)
