"""Phase ``pipelines``: what ``pipeline(task, model=folder)`` answers, in a child."""

from __future__ import annotations

from typing import Any

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import load
from samebits_probe.process import fork
from samebits_probe.process.quiet import be_quiet
from samebits_probe.questions.pipelines import pipelines, tasks

MAX_BYTES = 1 << 30
"""Bytes of parameters above which nothing is asked: every task loads the model again."""
_FORWARDS = 60
"""Cost of a task, in plain forwards."""


def observe(session: Session) -> None:
    """Call the pipelines of all tasks that the model's class serves, if time and memory allow it."""
    if (options := session.options("pipelines")) is None:
        return
    names = tasks.served(session.loaded.model)
    left_out = {name: tasks.missing(name, session.loaded, session.source) for name in names}
    left_out |= tasks.unasked(session.loaded.model)
    facts: dict[str, Any] = {name: {"left_out": why} for name, why in left_out.items() if why}
    asked = [name for name in names if name not in facts]
    if asked and session.leaves_out("pipelines", _too_dear(session, len(asked), options)):
        return
    if left_out:
        session.answer("pipelines", {"tasks": facts})
    if not asked:
        return
    session.begin("pipelines")
    with session.instrument("pipelines"):
        facts |= fork.run_in_fork(lambda: _quietly(session.source, asked, session.seconds_left))


def _too_dear(session: Session, n_tasks: int, options: Any) -> str:
    oversized = session.oversized(MAX_BYTES, options, "each task would load {} again")
    refused = oversized or fork.refusal(session.source.device)
    return refused or session.no_room(2) or session.no_time(_FORWARDS * n_tasks)


def _quietly(source: load.Source, names: list[str], seconds: float) -> dict[str, Any]:
    """Return task -> facts; warnings about defaults would come with each call."""
    be_quiet()
    return pipelines.facts(source, names, seconds)


PHASE = Phase("pipelines", 87, observe, needs_grad=True)
