"""Phase ``arguments``: whether each argument of forward still changes what it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits_probe.cell.phase import Phase
from samebits_probe.model import load
from samebits_probe.model.leftover import Leftover
from samebits_probe.process import progress
from samebits_probe.questions.arguments import arguments

if TYPE_CHECKING:
    from samebits_probe.cell.session import Session

MAX_BYTES = 256 << 20
"""Bytes of parameters above which nothing is asked: each argument costs a forward."""


def observe(session: Session) -> None:
    """Ask the first prompt of one row that forward answers."""
    options = session.options("arguments")
    if options is None:
        return
    forwards = session.signals.get("forward", {})
    prompt = next((i for name, i in session.prompts().items() if name in forwards), None)
    if prompt is None:
        return
    given = arguments.given(session.loaded.model, prompt.kwargs)
    if reason := _too_dear(session, len(given), large=bool(options.get("large"))):
        session.skip("arguments", reason, "cost")
        return
    session.begin("arguments")
    before = Leftover(session.loaded.model)
    with session.instrument("arguments"), progress.forwards(len(given) + 1, prompt.kwargs):
        effects = arguments.effects(session.loaded.model, prompt.kwargs, given, before.restore)
    session.answer("arguments", {"effects": effects})


def _too_dear(session: Session, n_arguments: int, *, large: bool) -> str:
    size = load.n_bytes(session.loaded.model)
    if size > MAX_BYTES and not large:
        return f"{n_arguments} forwards of {size / 2**30:.1f} GiB would take too long"
    return session.no_time(n_arguments + 1)


PHASE = Phase("arguments", 39, observe)
