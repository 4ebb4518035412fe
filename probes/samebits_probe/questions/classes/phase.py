"""Phase ``classes``: the checkpoint loaded by the base model, other heads and parts, and new models, in a child."""

from __future__ import annotations

from typing import Any

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model.inputs import Inputs
from samebits_probe.process import fork
from samebits_probe.process.quiet import be_quiet
from samebits_probe.questions.classes import classes, made

MAX_BYTES = 256 << 20
"""Bytes of parameters above which nothing is asked: every class loads the model again."""
_FORWARDS = 20
"""Cost of a load, in plain forwards."""


def observe(session: Session) -> None:
    """Load the checkpoint by each class of transformers that its config has beside its own; make a new model."""
    options = session.options("classes")
    model = session.loaded.model
    if options is None:
        return
    is_own = not classes.is_of_library(model)
    asked = classes.declared(session.source, model) if is_own else classes.asked(session.source)
    if is_own and not asked:
        return
    # one load for a class of several names, and one of the base model
    n_loads = len({*asked.values()} - {type(model), None}) + 1
    if session.leaves_out("classes", _too_dear(session, n_loads, options)):
        return
    session.begin("classes")
    prompt = next(iter(session.answered().values()), None)
    with session.instrument("classes"):
        session.answer("classes", fork.run_in_fork(lambda: _quietly(session, asked, prompt)))


def _too_dear(session: Session, n_classes: int, options: Any) -> str:
    oversized = session.oversized(MAX_BYTES, options, f"{n_classes} loads would take {{}} each")
    refused = oversized or fork.refusal(session.source.device)
    return refused or session.no_room(2) or session.no_time(_FORWARDS * (n_classes + 1))


def _quietly(session: Session, asked: dict[str, Any], prompt: Inputs | None) -> dict[str, Any]:
    """Return all facts; a warning would come with each tensor that has no value."""
    be_quiet()
    session.untouched.restore()
    own = classes.Own(session.loaded, session.known_hashes(), prompt.kwargs if prompt else None)
    if not classes.is_of_library(session.loaded.model):
        return {"loads": classes.facts(session.source, own, asked), "from_base": {}, "made": {}}
    new = made.facts(session.source, type(session.loaded.model))
    from_base = classes.from_base(own, session.source)
    loads = classes.facts(session.source, own, asked)
    return {"loads": loads, "from_base": from_base, "made": new}


PHASE = Phase("classes", 88, observe)
