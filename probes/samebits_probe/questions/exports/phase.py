"""Phase ``exports``: programs made of the model, in a child with the untouched model.

Making a program leaves tensors without numbers in some models, so that nothing can run after it.
"""

from __future__ import annotations

import json
from typing import Any

from samebits_probe.cell.phase import InFork, Phase
from samebits_probe.cell.session import Session
from samebits_probe.model.inputs import has_media
from samebits_probe.process import progress
from samebits_probe.questions.exports import exports

_NAME = "exports"
MAX_BYTES = 64 << 20
"""Bytes of parameters above which no program is made: some hold the weights once more."""
_SECONDS = 30.0
"""Seconds for one program; three were seen of tiny models."""


def observe(session: Session) -> None:
    """Make programs of the prompt with most inputs that forward answers, and of the first one."""
    if _NAME not in session.model_forks:
        return
    answered = {name: inputs.kwargs for name, inputs in session.answered().items()}
    if not answered or (reason := session.no_time(0, _SECONDS)):
        session.model_forks.pop(_NAME).forget()
        if answered:
            session.skip(_NAME, reason, "cost")
        return
    first, richest = next(iter(answered)), max(answered, key=lambda name: len(answered[name]))
    session.begin(_NAME)
    programs = session.run_in_fork(_NAME, json.dumps([*dict.fromkeys((richest, first))]))
    if programs is not None:
        session.answer(_NAME, {"programs": programs})


def untouched(session: Session) -> InFork | None:
    """Return what makes the programs; None if the job does not request them, or the model is large."""
    if (options := session.options(_NAME)) is None:
        return None
    reason = session.oversized(MAX_BYTES, options, "programs of {} would take too long")
    if session.leaves_out(_NAME, reason):
        return None
    return lambda _folder, prompts: _programs(session, json.loads(prompts))


def _programs(session: Session, prompts: list[str]) -> dict[str, dict[str, Any]]:
    inputs = session.prompts()
    progress.begin(_NAME)
    programs: dict[str, dict[str, Any]] = {way: {} for way in exports.WAYS}
    steps = [(way, prompt) for way in exports.WAYS for prompt in prompts]
    for i, (way, prompt) in enumerate(steps, 1):
        kwargs, of_way = inputs[prompt].kwargs, programs[way]
        made = [inputs[name].kwargs for name, each in of_way.items() if "refused" not in each]
        if way in exports.DEAR and has_media(kwargs) in map(has_media, made):
            continue  # of 418 cells none showed anything else by a second program of text
        progress.tick(f"{way} of {prompt}", i, len(steps), allowance=_SECONDS)
        of_way[prompt] = exports.made(session.loaded.model, kwargs, way)
    return programs


PHASE = Phase(_NAME, 83, observe, untouched)
