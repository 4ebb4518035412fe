"""Does a model choose the same tokens without a cache, with one by hand, and in generate().

Half of https://github.com/huggingface/transformers/issues/25420 was positions that a hand-made
loop left out, so the loop is run with and without them.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from probe_relations_cases import lengths
from probe_relations_distance import distance
from probe_relations_ways import Ids, Subject, Way

if TYPE_CHECKING:
    from collections.abc import Callable

NEEDS = ("decoder", "cache")
NAMES = ("greedy without cache = with cache", "greedy by hand = generate()")
_STEPS = 8

Facts = dict[str, Any]


class Decoded(NamedTuple):
    """Tokens chosen greedily, and the logits that chose each."""

    ids: tuple[int, ...]
    logits: torch.Tensor


def lacks(subject: Subject, name: str) -> str | None:
    """Return why a model cannot be compared with generate(); None if it can."""
    if name == NAMES[0]:
        return None
    can = getattr(subject.model, "can_generate", lambda: False)
    return None if can() else f"{type(subject.model).__name__} does not generate"


class Shape(NamedTuple):
    """A prompt, and whether the loop with the cache says where its tokens stand."""

    label: str
    prompt: Ids
    placed: bool


class Pair(NamedTuple):
    """Two ways to decode, and how they chose."""

    name: str
    shape: Shape
    one: Decoded
    other: Decoded


def shapes(subject: Subject) -> list[Shape]:
    """Return what is tried: the loop with positions and mask, and without."""
    n = lengths(subject)[0] - _STEPS
    prompt = subject.prompt("row 0", n)
    label = f"{n} tokens, {_STEPS} more"
    return [
        Shape(f"{label}, positions and mask given", prompt, placed=True),
        Shape(f"{label}, positions and mask left out", prompt, placed=False),
    ]


def pair(subject: Subject, name: str, shape: Shape) -> Pair:
    """Decode both ways that a relation names."""
    way = without_cache if name == NAMES[0] else generated
    return Pair(name, shape, way(subject, shape.prompt), with_cache(subject, shape))


def facts(
    name: str, tried: list[Pair], promoted: Callable[[Callable[[Subject], Facts]], Facts | None]
) -> Facts:
    """Return a relation of tokens: the first shape that parts, or the first."""
    shown = next((p for p in tried if p.one.ids != p.other.ids), tried[0])
    parts, own = split(shown.one, shown.other), apart(shown)
    return {
        "relation": name,
        "case": shown.shape.label,
        "holds": parts["step"] is None,
        "distance": own,
        "promoted": promoted(lambda s: apart(pair(s, name, shown.shape)))
        if own["n_differ"]
        else None,
        "split": parts,
        "tried": len(tried),
    }


def without_cache(subject: Subject, prompt: Ids) -> Decoded:
    """Choose each token from a forward over all tokens so far."""
    ids, logits = prompt, []
    for _ in range(_STEPS):
        walk = subject.walk(Way((ids,), cached=False))
        logits.append(walk.logits[0, -1])
        ids += (int(logits[-1].argmax()),)
    return Decoded(ids[-_STEPS:], torch.stack(logits))


def with_cache(subject: Subject, shape: Shape) -> Decoded:
    """Choose each token from a forward over the last one and the cache."""
    ids, logits, past = shape.prompt, [], 0
    cache = subject.new_cache(Way((ids + (0,) * _STEPS,)))
    for _ in range(_STEPS):
        step = subject.step(Way((ids,), placed=shape.placed), past, len(ids), cache)
        cache, past = step.cache, len(ids)
        logits.append(step.logits[0, -1])
        ids += (int(logits[-1].argmax()),)
    subject.settle()
    return Decoded(ids[-_STEPS:], torch.stack(logits))


def generated(subject: Subject, prompt: Ids) -> Decoded:
    """Let generate() choose, with the model's own settings made greedy: they name its cache."""
    settings = copy.deepcopy(subject.model.generation_config)
    settings.update(
        max_new_tokens=_STEPS,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    given = subject.generation_inputs(Way((prompt,)))
    with subject.arithmetic():
        output = subject.model.generate(**given, generation_config=settings)
    subject.settle()
    count = len(output.logits)
    ids = output.sequences[0, -count:].tolist()
    return Decoded(tuple(ids), torch.stack([logits[0] for logits in output.logits]))


def split(one: Decoded, other: Decoded) -> Facts:
    """Return the first step at which the tokens differ, and the margin of the choice there."""
    pairs = enumerate(zip(one.ids, other.ids, strict=False))
    step = next((index for index, (a, b) in pairs if a != b), None)
    margin = None
    if step is not None:
        first, second = torch.topk(one.logits[step].double(), 2).values.tolist()
        margin = first - second
    return {"step": step, "margin": margin, "one": list(one.ids), "other": list(other.ids)}


def apart(pair: Pair) -> Facts:
    """Return the distance of the logits up to where the tokens part: later ones have no pair.

    generate() hands out a float32 copy of what chose the token, whatever the model's dtype is.
    """
    one, other = pair.one, pair.other
    step = split(one, other)["step"]
    stop = min(len(one.ids), len(other.ids)) if step is None else step + 1
    wide = torch.promote_types(one.logits.dtype, other.logits.dtype)
    return distance(one.logits[:stop].to(wide), other.logits[:stop].to(wide), logits=True)
