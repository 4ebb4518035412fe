"""Phase ``usage``: what users do around the model, in a child with the untouched model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from samebits_probe.cell.phase import InFork, Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import load, small
from samebits_probe.questions.usage import usage

_FORWARDS = 60
"""Cost of the phase, in plain forwards."""
_NONE_MADE, _TOO_LARGE = "none made", "too large"


def observe(session: Session) -> None:
    """Run the checks in the forked child, if time and memory allow it."""
    if "usage" not in session.model_forks:
        return
    if reason := session.too_dear(1, _FORWARDS):
        session.skip("usage", reason, "cost")
        session.model_forks.pop("usage").forget()
        return
    session.begin("usage")
    if (answer := session.run_in_fork("usage", str(session.seconds_left))) is None:
        return
    if reason := answer.pop(_NONE_MADE, ""):
        session.skip("usage: made model", f"no small model of its kind: {reason}", "cost")
    if reason := answer.pop(_TOO_LARGE, ""):
        session.skip("usage", reason, "cost")
        return
    session.answer("usage", answer)


def untouched(session: Session) -> InFork | None:
    """Return the checks; None if the job does not request them."""
    if session.options("usage") is None:
        return None
    if small.stands_in(session.loaded.model, session.job["model"]):
        return lambda saved, argument: _of_made_model(session, saved, float(argument))
    return lambda saved, argument: _of_model(session, saved, float(argument))


def _of_model(session: Session, saved: Path, limit: float) -> dict[str, Any]:
    source = session.source._replace(attention="eager")
    return usage.usage(
        session.loaded,
        saved,
        limit,
        _prompts(session),
        lambda: load.load(source).model,
        session.source,
    )


def _prompts(session: Session) -> dict[str, dict[str, Any]]:
    return {name: dict(inputs.kwargs) for name, inputs in session.prompts().items()}


def _of_made_model(session: Session, saved: Path, limit: float) -> dict[str, Any]:
    """Return the answers of a made model; those of the model itself if there is none."""
    loaded = session.loaded
    try:
        with small.made(loaded, session.source) as made:
            source = session.source.at(str(made.folder))
            answers = usage.usage(loaded._replace(model=made.model), saved, limit, source=source)
            return answers | {"asked_of": made.facts}
    except small.NoneMade as reason:
        none_made = {_NONE_MADE: str(reason)}
    size = load.n_bytes(loaded.model)
    if size > usage.MAX_BYTES:
        too_large = f"thirty forwards and a save of {size / 2**30:.1f} GiB would take too long"
        return none_made | {_TOO_LARGE: too_large}
    return none_made | _of_model(session, saved, limit)


PHASE = Phase("usage", 80, observe, untouched, needs_grad=True)
