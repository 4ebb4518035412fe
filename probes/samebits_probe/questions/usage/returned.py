"""What forward's output has besides its items, and what generate() returns: its fields and how many steps they have; of the cache, layers, tokens and keys of the encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.model.outputs import CACHES
from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text
from samebits_wire.arguments import FIELDS

Facts = dict[str, Any]
_STEPS: Facts = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
_RETURNED: Facts = {"return_dict_in_generate": True}
_ALL: Facts = _RETURNED | dict.fromkeys(
    ("output_scores", "output_logits", "output_hidden_states"), True
)
_MODELS = "transformers.models."
_AXES = 4
"""Rows, heads, tokens, numbers of a head."""
_CROSSED = 2
"""Place of the encoder's keys in a layer of a cache that is a tuple."""


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the call that applies to any model, and those to one that generates."""
    if subject.fed():
        yield "properties of forward's output", partial(_properties, subject)
    if subject.model.can_generate():
        yield "len(past_key_values) of generate()", partial(_returned, subject)
        yield "get_seq_length() of the cache of generate()", partial(_length, subject)
        yield "keys and values in the cache of generate()", partial(_form, subject)
        yield FIELDS, partial(_fields, subject)


def _properties(subject: Subject) -> str:
    """Read each property of what forward returns for the first prompt, and say so.

    ``image_hidden_states`` of LLaVA is a field through 5.23, None for a text alone; the property that 5.24 has in its place
    reads what is None.
    """
    with torch.no_grad():
        output = subject.model(**subject.fed())
    for owner in type(output).__mro__:
        for name, member in vars(owner).items():
            # those of every output, such as its former name of a cache, are no promise of this one
            if isinstance(member, property) and owner.__module__.startswith(_MODELS):
                getattr(output, name)
    return "each has a value"


def _returned(subject: Subject) -> str:
    """Return how many layers a cache has, and how much of the encoder's output its keys are of."""
    cache = _cache(subject)
    of_encoder = _keys_of_encoder(cache)
    return f"{len(cache)}{f', {of_encoder} keys of the encoder' if of_encoder else ''}"


def _cache(subject: Subject) -> Any:
    if (cache := _generated(subject, _RETURNED).get("past_key_values")) is None:
        raise NoMeaning("generate() returns no cache")
    return cache


def _length(subject: Subject) -> str:
    """Return how many tokens a cache says that it has seen."""
    cache = _cache(subject)
    if isinstance(cache, tuple):
        raise NoMeaning("the cache is a tuple")
    try:
        return str(int(cache.get_seq_length()))
    except ValueError as error:  # a state has no length
        raise NoMeaning(error_text(error)) from error


def _form(subject: Subject) -> str:
    """Return the shapes of the first keys and values, but for their length: static and sliding caches differ in it."""
    cache = _cache(subject)
    pairs = _pairs(getattr(cache, "self_attention_cache", cache))
    for pair in pairs:
        if all(torch.is_tensor(each) and each.ndim == _AXES for each in pair):
            shapes = ([*each.shape] for each in pair)
            return " and ".join(f"[{b}, {heads}, …, {size}]" for b, heads, _, size in shapes)
    raise NoMeaning("the cache has no keys and values of each head")


def _pairs(cache: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and values of each layer; releases up to 4.55 keep them as two lists, or as tuples."""
    if isinstance(cache, tuple):
        yield from (layer[:2] for layer in cache if isinstance(layer, tuple))
    elif hasattr(cache, "layers"):
        yield from ((getattr(e, "keys", None), getattr(e, "values", None)) for e in cache.layers)
    else:
        lists = (getattr(cache, name, ()) for name in ("key_cache", "value_cache"))
        yield from zip(*lists, strict=False)


def _fields(subject: Subject) -> str:
    """Return the fields, and of how many steps and layers they are.

    Attention maps are another question, and so is the cache, which has other names in other releases.
    """
    output = _generated(subject, _ALL)
    return ", ".join(
        sorted(_shown(name, value) for name, value in output.items() if name not in CACHES)
    )


def _shown(name: str, value: Any) -> str:
    if torch.is_tensor(value):
        return f"{name} {[*value.shape]}"
    layers = ""
    if value and (value[0] is None or isinstance(value[0], tuple)):
        layers = f" of {'none' if value[0] is None else len(value[0])}"
    return f"{name} {len(value)}{layers}"


def _generated(subject: Subject, arguments: Facts) -> Any:
    """Return what generate() gives for a prompt."""
    if not (fed := subject.fed()):
        raise NoMeaning(subject.refuses_text())
    if not subject.prompts:
        fed = fed | {"attention_mask": torch.ones_like(fed["input_ids"])}
    with torch.no_grad():
        try:
            return subject.model.generate(**fed, **_STEPS, **arguments)
        except Exception as error:
            raise NoMeaning(f"generate() raises {error_text(error)}") from error


def _keys_of_encoder(cache: Any) -> int:
    """Return how many keys a decoder has of its encoder; releases up to 4.57 return some caches as tuples."""
    if isinstance(cache, tuple):
        return int(cache[0][_CROSSED].shape[-2]) if len(cache[0]) > _CROSSED else 0
    crossed = getattr(cache, "cross_attention_cache", None)
    return 0 if crossed is None else int(crossed.get_seq_length())
