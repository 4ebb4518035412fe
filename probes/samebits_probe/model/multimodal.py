"""Prompts with images, a video or a sound, for models that take them among their token ids.

How a model takes an image is in no config: the shape of its pixels, what it needs beside them, and how many placeholder
tokens stand for one image. So layouts are tried in a small model that the class makes of the config. One fits if forward
takes it for one row and for two, and what it computes follows from the image. The number of placeholder tokens is the
largest with which it does: a release that does not count them must not decide it. Two images per row are tried in the
same model: an image must change what is computed of its own row, and of no other. A video is tried as one run of
placeholders, and as one for each of its frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from samebits_probe.model import tried
from samebits_probe.model.choice import PIXELS, TOKENS, NotFed, Signature
from samebits_probe.model.inputs import token_config, vocabulary
from samebits_probe.model.media_layouts import (
    FEATURES,
    image_argument,
    layouts_of,
    number,
    part,
    video_argument,
)
from samebits_probe.model.media_trial import Trial
from samebits_probe.model.media_way import PLACEHOLDERS, VIDEO_START, Way, first, placeholder

_MODELS = 2
"""Small models that are tried: one with fewer layers may not run."""
_ARTICLES = {"image": "an image", "video": "a video", "audio": "a sound"}


def kinds(config: Any, signature: Signature, fed: tuple[str, ...]) -> Iterator[str]:
    """Yield ``image``, ``video`` and ``audio`` if forward takes it beside token ids, and ``fed`` has none."""
    if TOKENS not in signature.names:
        return
    if image_argument(signature) and PIXELS not in fed:
        yield "image"
    if video_argument(signature):
        yield "video"
    has_sound = part(config, "audio") is not config or first(config, PLACEHOLDERS["audio"])
    if FEATURES in signature.names and FEATURES not in fed and has_sound:
        yield "audio"


def way(kind: str, model_class: Any, config: Any, signature: Signature) -> Way:
    """Return how a model takes an image, a video or a sound."""
    named = next((n for n in PLACEHOLDERS[kind] if number(config, n) is not None), "")
    if named and placeholder(kind, config, signature) is None:
        raise NotFed(
            f"{named} {number(config, named)} is outside of the vocabulary of {vocabulary(token_config(config))}"
        )
    reason = "its class makes no small model of the config to try them in"
    for model in islice(tried.small_models(model_class, config), _MODELS):
        reason = "no layout is known"
        for of_kind in _stand_ins(kind, config):
            # a small model may have a smaller vocabulary, and so another id
            own = placeholder(of_kind, model.config, signature)
            if named and own is None:
                continue
            trial = Trial(kind, model, signature, own)
            for layout in layouts_of(kind, config, signature):
                if (fitting := trial.way(layout)) is not None:
                    return fitting._replace(placeholder=placeholder(of_kind, config, signature))
                reason = trial.reason or reason
    raise NotFed(
        f"samebits could not find out how the model takes {_ARTICLES[kind]} among its tokens: {reason}"
    )


def _stand_ins(kind: str, config: Any) -> tuple[str, ...]:
    """Return the kinds whose token may stand for one of a kind.

    Frames of GLM-4V stand as images between the tokens that begin and end a video.
    """
    has_marks = kind == "video" and first(config, VIDEO_START) is not None
    return (kind, "image") if has_marks else (kind,)
