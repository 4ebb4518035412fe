"""Phase ``edits``: what comes of changes that users make to a loaded model, in a child with the untouched one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from samebits_probe.cell.phase import InFork, Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import load, small
from samebits_probe.model.inputs import seeded_ids, text_config
from samebits_probe.process import progress
from samebits_probe.process.quiet import be_quiet
from samebits_probe.questions.edits import edits
from samebits_probe.questions.edits.subject import Subject

_NAME, _NONE_MADE = "edits", "none made"
MAX_BYTES = 256 << 20
"""Bytes of parameters above which nothing is asked of a model itself: edits make, save and load it again."""
_FORWARDS = 60
"""Cost of all edits, in plain forwards."""
_LENGTH = 12
"""Tokens that a made model is fed."""


def observe(session: Session) -> None:
    """Edit a model that answers the first prompt, or a made one of its kind."""
    if _NAME not in session.model_forks:
        return
    first = next(iter(session.answered()), None)
    reason = session.too_dear(3, _FORWARDS)
    if first is None or reason:
        session.model_forks.pop(_NAME).forget()
        if first is not None:
            session.skip(_NAME, reason, "cost")
        return
    session.begin(_NAME)
    if (facts := session.run_in_fork(_NAME, first)) is None:
        return
    if reason := facts.pop(_NONE_MADE, ""):
        session.skip(_NAME, f"no small model of its kind: {reason}", "cost")
    else:
        session.answer(_NAME, facts)


def untouched(session: Session) -> InFork | None:
    """Return what edits the model; None if the job does not request it, or for one that its config does not make."""
    if session.options(_NAME) is None or _is_changed(session.loaded):
        return None
    if small.stands_in(session.loaded.model, session.job["model"]):
        return lambda folder, prompt: _of_made_model(session, folder, prompt)
    return lambda folder, prompt: _of_model(session, folder, prompt)


def _is_changed(loaded: load.Loaded) -> bool:
    """Return True for a model whose weights are quantized, or in which adapters are."""
    is_quantized = getattr(loaded.config, "quantization_config", None) is not None
    return is_quantized or bool(getattr(loaded.model, "_hf_peft_config_loaded", False))


def _of_model(session: Session, folder: Path, prompt: str) -> dict[str, Any]:
    be_quiet()
    progress.begin(_NAME)
    kwargs = dict(session.inputs(prompt).kwargs)
    subject = Subject(session.loaded.model, session.source, kwargs, folder)
    return {"after": edits.edits(subject)}


def _of_made_model(session: Session, folder: Path, prompt: str) -> dict[str, Any]:
    """Return what comes of edits of a made model; of the model itself if there is none and it is not too large."""
    be_quiet()
    progress.begin(_NAME)
    try:
        with small.made(session.loaded, session.source) as made:
            source = session.source.at(str(made.folder))
            subject = Subject(made.model, source, _inputs(made.model), folder)
            return {"after": edits.edits(subject), "asked_of": made.facts}
    except small.NoneMade as reason:
        if load.n_bytes(session.loaded.model) > MAX_BYTES:
            return {_NONE_MADE: str(reason)}
    return _of_model(session, folder, prompt)


def _inputs(model: Any) -> dict[str, Any]:
    """Return a row of tokens, which is nothing to a model of images or sounds: no edit of it is tried."""
    ids = torch.tensor([seeded_ids(_NAME, _LENGTH, text_config(model.config))])
    return {"input_ids": ids} | (
        {"decoder_input_ids": ids} if load.is_encoder_decoder(model) else {}
    )


PHASE = Phase(_NAME, 84, observe, untouched)
