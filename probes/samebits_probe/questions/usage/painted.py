"""What a model paints: ``generate()`` of a class that makes the tokens of an image from a text, as Janus does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch

_PAINTS = "prepare_embeddings_for_image_generation"
_BEGIN, _WORDS = 1, [5, 6, 7]
_N_TOKENS = 4
"""Tokens of the image: a real one has hundreds, each of which costs a forward."""


def calls(model: Any) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the call that applies to a model that paints."""
    if hasattr(model, _PAINTS):
        yield "generate(generation_mode='image')", partial(_painted, model)


def _painted(model: Any) -> str:
    """Return how many images of how many tokens there are; which tokens they are follows from logits."""
    settings = model.generation_config
    own = getattr(settings, "generation_kwargs", None) or {}
    ends = [own["boi_token_id"]] if "boi_token_id" in own else []
    ids = torch.tensor([[settings.bos_token_id or _BEGIN, *_WORDS, *ends]])
    given = {"attention_mask": torch.ones_like(ids), "do_sample": False}
    vision = model.model.vision_model.config
    with mock.patch.object(vision, "num_image_tokens", _N_TOKENS), torch.no_grad():
        made = model.generate(ids, generation_mode="image", **given)
    return f"tokens of images {[*made.shape]}"
