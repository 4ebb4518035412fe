"""Phase ``initial``: new models of the config and new heads of the checkpoint, in a child."""

from __future__ import annotations

from typing import Any

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.process import fork
from samebits_probe.process.quiet import be_quiet
from samebits_probe.questions.initial import drawn

_NAME = "initial"
MAX_BYTES = 256 << 20
"""Bytes of parameters above which nothing is asked: a model is made up to a dozen times."""
_FORWARDS = 60
"""Cost of all models, in plain forwards."""


def observe(session: Session) -> None:
    """Make models, if the job asks for it."""
    options = session.options(_NAME)
    if options is None or session.leaves_out(_NAME, _too_dear(session, options)):
        return
    session.begin(_NAME)
    with session.instrument(_NAME):
        session.answer(_NAME, fork.run_in_fork(lambda: _quietly(session)))


def _too_dear(session: Session, options: Any) -> str:
    oversized = session.oversized(MAX_BYTES, options, "new models would take {} each")
    refused = oversized or fork.refusal(session.source.device)
    return refused or session.no_room(3) or session.no_time(_FORWARDS)


def _quietly(session: Session) -> dict[str, Any]:
    be_quiet()
    loaded = session.loaded
    return drawn.facts(session.source, type(loaded.model), loaded.config)


PHASE = Phase(_NAME, 89, observe)
