"""Phase ``omitted``: what forward computes without the arguments that only some releases take or use."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import choice, media_way, outputs, tried
from samebits_probe.model.leftover import Leftover
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line


def observe(session: Session) -> None:
    """Record for each optional argument whether forward gives the same logits without it as with it; in run a."""
    if not session.is_run_a:
        return
    prompts = session.answered()
    wholes = {n: i.kwargs for n, i in prompts.items() if i.optional}
    if not wholes:
        return
    takes_segments = any(media_way.SEGMENTS in i.optional for i in prompts.values())
    texts = {n: i.kwargs for n, i in prompts.items() if takes_segments and not i.is_set}
    session.begin("omitted")
    n_forwards = 3 * len(wholes) + 2 * len(texts)
    if session.leaves_out("omitted", session.no_time(n_forwards)):
        return
    before = Leftover(session.loaded.model)
    with session.instrument("omitted"), progress.forwards(n_forwards, next(iter(wholes.values()))):
        effects = Effects(session.loaded.model, before)
        for name, kwargs in wholes.items():
            session.signals["forward"][name]["omitted"] = {
                argument: effects.without(kwargs, argument) for argument in prompts[name].optional
            }
        for name, kwargs in texts.items():
            segments = {media_way.SEGMENTS: torch.zeros_like(kwargs[choice.TOKENS])}
            effect = effects.without({**kwargs, **segments}, media_way.SEGMENTS)
            session.signals["forward"][name]["omitted"] = {media_way.SEGMENTS: effect}
    before.restore()


class Effects(NamedTuple):
    """What a forward does without one of its arguments."""

    model: Any
    before: Leftover
    """The state from which each forward starts."""

    def without(self, kwargs: dict[str, Any], argument: str) -> dict[str, str]:
        """Return samebits' Omission as plain data."""
        complete = self._logits_hash(kwargs)
        try:
            digest = self._logits_hash({k: v for k, v in kwargs.items() if k != argument})
        except Exception as error:  # noqa: BLE001  that it raises is the observation
            message = in_one_line(error, tried.MAX_REASON)
            return {"effect": "raises", "message": message, "complete": complete}
        effect = "none" if digest == complete else "other logits"
        return {"effect": effect, "complete": complete}

    def _logits_hash(self, kwargs: dict[str, Any]) -> str:
        try:
            logits = outputs.logits_of(self.model(**kwargs))
        finally:
            self.before.restore()
        return "" if logits is None else tensor_hash(logits)


PHASE = Phase("omitted", 38, observe)
