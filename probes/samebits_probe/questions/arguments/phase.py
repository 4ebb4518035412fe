"""Phase ``arguments``: whether each argument of forward and generate() still changes what it changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model.leftover import Leftover
from samebits_probe.process import progress
from samebits_probe.questions.arguments import arguments, generating, ones, states
from samebits_wire.arguments import MORE_THAN_TEXT

Facts = dict[str, Any]
_FORWARDS = 60
"""Forwards of all that is asked of generate()."""
MAX_BYTES = 256 << 20
"""Bytes of parameters above which nothing is asked: each argument costs a forward."""


def observe(session: Session) -> None:
    """Ask the first prompt that forward answers."""
    if (options := session.options("arguments")) is None:
        return
    answered = {name: inputs.kwargs for name, inputs in session.answered().items()}
    if not answered:
        return
    first, richest = next(iter(answered)), max(answered, key=lambda name: len(answered[name]))
    if facts := _of_forward(session, answered[first], options):
        facts |= _of_states(session, {name: answered[name] for name in (first, richest)})
        facts |= _of_ones(session, answered)
    inputs = generating.inputs(session.loaded.model, answered[first])
    if facts and inputs is not None:
        facts |= _of_generate(session, inputs, options)
    if facts and (media := generating.with_media(session.loaded.model, answered[richest])):
        facts["generate"] = {**facts.get("generate", {}), **_of_media(session, media)}
        facts["effects"] |= _beside_media(session, answered[richest])
    if facts:
        session.answer("arguments", facts)


def _of_forward(session: Session, kwargs: Facts, options: Any) -> Facts:
    model = session.loaded.model
    given = arguments.given(model, kwargs)
    if session.leaves_out("arguments", _too_dear(session, len(given) + 1, options)):
        return {}
    session.begin("arguments")
    ask = partial(arguments.effects, model, kwargs, given)
    return _asked(session, "arguments", "effects", ask, progress.forwards(len(given) + 1, kwargs))


def _of_states(session: Session, prompts: Mapping[str, Facts]) -> Facts:
    if session.no_time(len(prompts)):
        return {}
    ask = partial(states.held, session.loaded.model, prompts)
    return _asked(session, "hidden states of the output", "states", ask)


def _of_ones(session: Session, prompts: Mapping[str, Facts]) -> Facts:
    if session.no_time(2):
        return {}
    ask = partial(ones.effects, session.loaded.model, prompts)
    return _asked(session, "an attention mask of ones", "ones", ask)


def _of_generate(session: Session, kwargs: Facts, options: Any) -> Facts:
    if session.leaves_out("arguments of generate()", _too_dear(session, _FORWARDS, options)):
        return {}
    cost = progress.forwards(_FORWARDS, kwargs)

    def ask(restore: Callable[[], None]) -> Facts:
        return generating.Generation(session.loaded.model, kwargs, restore).effects()

    return _asked(session, "arguments of generate()", "generate", ask, cost)


def _of_media(session: Session, kwargs: Facts) -> Facts:
    if session.no_time(4):
        return {}

    def ask(restore: Callable[[], None]) -> Facts:
        return generating.Generation(session.loaded.model, kwargs, restore).of_media()

    facts = _asked(session, "arguments of generate() beside an image", "media", ask)
    return dict(facts["media"])


def _beside_media(session: Session, kwargs: Facts) -> Facts:
    model = session.loaded.model
    values = {n: v for n, v in arguments.beside_media(model).items() if n not in kwargs}
    if session.no_time(len(values) + 1):
        return {}
    ask = partial(arguments.effects, model, kwargs, values)
    facts = _asked(session, "arguments of forward beside an image", "effects", ask)
    return {f"{name} ({MORE_THAN_TEXT})": fact for name, fact in facts["effects"].items()}


def _asked(
    session: Session,
    what: str,
    key: str,
    ask: Callable[[Callable[[], None]], Facts],
    cost: AbstractContextManager[Any] | None = None,
) -> Facts:
    """Return what ``ask`` returns, by ``key``; it gets what undoes what a forward leaves."""
    facts: Facts = {}
    with session.instrument(what), cost or nullcontext():
        facts[key] = ask(Leftover(session.loaded.model).restore)
    return facts


def _too_dear(session: Session, n_forwards: int, options: Any) -> str:
    reason = f"{n_forwards} forwards of {{}} would take too long"
    return session.oversized(MAX_BYTES, options, reason) or session.no_time(n_forwards)


PHASE = Phase("arguments", 39, observe)
