"""Phase ``relations``: the relations that must hold inside one cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import load, small
from samebits_probe.questions.relations import relations
from samebits_probe.questions.relations.relations import RelationOptions


def observe(session: Session) -> None:
    """Check the relations, if time and memory allow it; only in run a."""
    if (options := session.options("relations")) is None:
        return
    if small.stands_in(session.loaded.model, session.job["model"]):
        with session.instrument("relations"):
            if _of_made_model(session, options):
                return
    _of_model_itself(session, options)


def _of_made_model(session: Session, options: RelationOptions) -> bool:
    """Check the relations of a made model; False, with a skip, if there is none."""
    if session.leaves_out("relations", session.no_time(0, small.SECONDS)):
        return True
    session.begin("relations")
    try:
        with small.made(session.loaded, session.source) as made:
            eager = _with_eager(session.source._replace(where=str(made.folder), revision=None))
            session.answer("relations", relations.of_made_model(made, options, eager))
    except small.NoneMade as none:
        session.skip("relations: made model", f"no small model of its kind: {none}", "cost")
        return False
    if options.get("samples"):
        own = "means over many prompts are of the model's own weights: relations: true gives them"
        session.skip("relations: averages", own, "cost")
    return True


def _of_model_itself(session: Session, options: RelationOptions) -> None:
    size, dtype = load.n_bytes(session.loaded.model), getattr(torch, session.source.dtype)
    n_forwards, times = relations.cost(size, dtype, options)
    reason = relations.too_large(size, options) or session.no_room(times)
    reason = reason or session.no_time(n_forwards, session.seconds["load"])
    if session.leaves_out("relations", reason):
        return
    session.begin("relations")
    with session.instrument("relations"):
        # an earlier prompt may have scaled the rope
        model = session.untouched_model("relations", session.too_large())
        eager = None if session.no_room(2 * times) else _with_eager(session.source)
        observed = relations.observe(
            model, session.loaded.head, model.config, options, _prompts(session), eager
        )
        session.answer("relations", observed)


def _with_eager(source: load.Source) -> Callable[[], Any]:
    return lambda: load.load_model(source._replace(attention="eager")).model


def _prompts(session: Session) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield forward's arguments for every input set, or for the first prompt if there is none."""
    prompts = session.prompts()
    for name in [name for name, inputs in prompts.items() if inputs.is_set] or list(prompts)[:1]:
        yield name, prompts[name].kwargs


PHASE = Phase("relations", 90, observe)
