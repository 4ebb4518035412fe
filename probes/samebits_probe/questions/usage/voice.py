"""What a model says aloud: ``generate`` of a class that takes a speaker, and its voice with and without guidance."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.model.leftover import seed

_TURNS = ("im_start_token_id", "user_token_id", "im_end_token_id", "assistant_token_id")
_WORDS = [5, 6, 7, 8, 9]
_SAID = 3
"""Tokens of the answer and of its sound, so few that none of both ends."""
_CODES, _STEPS, _SCALES = 12, 2, (0.5, 0.0)
"""Codes of a voice, steps in which it is made, and how much it is guided; none of it is a way of its own."""
_OF_SPEAKER = {"conditioning": "cond", "reference_mel": "ref_mel"}
"""Argument of a voice -> its name in what is kept of a speaker."""
_TALK = ("thinker_max_new_tokens", "talker_max_new_tokens", "talker_min_new_tokens")


def calls(model: Any) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the calls that apply to a model that knows a speaker."""
    if not hasattr(model, "talker") or not (speaker := _speaker(model)):
        return
    if "speaker" not in inspect.signature(model.generate).parameters:
        return
    yield "generate(speaker=…)", partial(_said, model, speaker)
    for scale in _SCALES if hasattr(model, "token2wav") else ():
        yield f"token2wav(…, guidance_scale={scale})", partial(_voiced, model, speaker, scale)


def _speaker(model: Any) -> str:
    """Return the first speaker, of a file beside the weights or of the config."""
    config = getattr(model.config, "talker_config", None)
    named = getattr(model, "speaker_map", None) or getattr(config, "speaker_id", None) or {}
    return next(iter(named), "")


def _voiced(model: Any, speaker: str, scale: float) -> str:
    """Return how long the sound of a few codes is."""
    voice, of_speaker = model.token2wav, model.speaker_map[speaker]
    codes = torch.arange(_CODES)[None]
    given = {name: of_speaker[key].to(voice.dtype) for name, key in _OF_SPEAKER.items()}
    seed(0)
    with torch.no_grad():
        made = voice(codes, **given, num_steps=_STEPS, guidance_scale=scale)
    return f"a sound of {made.numel()} samples"


def _said(model: Any, speaker: str) -> str:
    """Return how long the sound of an answer is; its values follow from tokens that round."""
    ids = torch.tensor([_turns(model.config)])
    given = {"attention_mask": torch.ones_like(ids), "return_audio": True, "speaker": speaker}
    seed(0)
    with torch.no_grad():
        made = model.generate(ids, **given, **dict.fromkeys(_TALK, _SAID), talker_do_sample=False)
    return f"a sound of {made[1].numel()} samples"


def _turns(config: Any) -> list[int]:
    """Return a question and the begin of an answer, in turns if the config has tokens for them."""
    named = (getattr(config, name, None) for name in _TURNS)
    tokens = [token for token in named if token is not None]
    if len(tokens) < len(_TURNS):
        return _WORDS
    start, user, end, assistant = tokens
    return [start, user, *_WORDS, end, start, assistant]
