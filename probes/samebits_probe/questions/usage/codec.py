"""What a codec makes of its own codes: ``decode`` of what ``encode`` gives, beside its forward."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from samebits_probe.questions.usage.subject import NoMeaning, error_text

_CODES, _SOUND, _HEARD = "audio_codes", "input_values", "audio_values"
_NEAR = 1e-3
"""Up to where sounds are the same, beside the loudest value; other codes are far more apart."""


def calls(
    model: Any, prompts: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the call that applies to a codec of sounds."""
    decode = getattr(model, "decode", None)
    fed = next((fed for fed in prompts.values() if _SOUND in fed), None)
    if fed is None or decode is None or not hasattr(model, "encode"):
        return
    if _CODES in inspect.signature(decode).parameters:
        yield f"decode({_CODES}=encode(…))", partial(_decoded, model, fed)


def _decoded(model: Any, fed: dict[str, Any]) -> str:
    """Return whether a sound that is encoded and decoded is that of forward."""
    with torch.no_grad():
        try:
            plain = model(**fed)[_HEARD]
            encoded = model.encode(**_taken(model.encode, fed))
        except Exception as error:  # the forward has it, and the features of encode
            raise NoMeaning(f"without codes: {error_text(error)}") from error
        again = model.decode(**_given(model.decode, encoded))
    heard = again[_HEARD] if _HEARD in again else again[0]
    length = min(heard.shape[-1], plain.shape[-1])  # forward may cut what is behind the sound
    distance = (heard[..., :length].double() - plain[..., :length].double()).abs().max()
    return f"the sound of forward: {bool(distance <= _NEAR * plain.double().abs().max())}"


def _taken(method: Any, fed: dict[str, Any]) -> dict[str, Any]:
    return {name: fed[name] for name in inspect.signature(method).parameters if name in fed}


def _given(decode: Any, encoded: Any) -> dict[str, Any]:
    """Return the codes, and what decode cannot do without of all that encode gives."""
    parameters = inspect.signature(decode).parameters.values()
    names = [p.name for p in parameters if p.name == _CODES or p.default is p.empty]
    if _CODES not in encoded:
        raise NoMeaning("encode gives no codes")
    return {name: encoded[name] for name in names if name in encoded}
