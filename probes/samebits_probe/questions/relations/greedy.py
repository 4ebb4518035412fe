"""Greedy decoding without a cache, with a cache in a loop, and in generate().

The model must choose the same tokens. Half of
https://github.com/huggingface/transformers/issues/25420 was positions that a handwritten loop left
out, so the loop runs with and without them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from samebits_probe.model import forks, load
from samebits_probe.model.scaling import scalings
from samebits_probe.process import progress
from samebits_probe.questions.relations.cases import lengths
from samebits_probe.questions.relations.tokens import Decoded, Pair, TokenRelation, Trial
from samebits_probe.questions.relations.ways import Ids, Subject, Way

_STEPS = 8
_MOST_WORK = 1 << 35
"""Bytes of parameters times tokens up to which a long prompt is fed."""


def no_generate(subject: Subject) -> str | None:
    """Return why a model cannot be compared with generate(); None if it can."""
    can_generate = getattr(subject.model, "can_generate", lambda: False)
    return None if can_generate() else f"{type(subject.model).__name__} does not generate"


def _trials(decode: Callable[[Subject, Ids, int], Decoded], subject: Subject) -> Iterator[Trial]:
    """Compare ``decode`` with the loop with a cache, with and without positions and mask."""
    n = max(1, lengths(subject)[0] - _STEPS)
    prompt = subject.prompt("row 0", n)
    for placed, placement in ((True, "given"), (False, "left out")):

        def pairs(s: Subject, n_steps: int, *, placed: bool = placed) -> list[Pair]:
            first = s.memoized((decode, n_steps), lambda: decode(s, prompt, n_steps))
            loop = partial(with_cache, s, prompt, n_steps, placed=placed)
            return [Pair(first, s.memoized(("with cache", placed, n_steps), loop))]

        label = f"{n} tokens, {_STEPS} more, positions and mask {placement}"
        yield Trial(label, _STEPS, (n, n + _STEPS), pairs)


def _too_far(subject: Subject) -> str | None:
    """Return why generate() is not asked to pass the length at which a rope switches; None if it is, or if none does."""
    limit = _switch(subject)
    is_near = load.n_bytes(subject.model) * limit <= _MOST_WORK
    return None if is_near else f"{limit} tokens take too long in a model of its size"


def _switch(subject: Subject) -> int:
    """Return the length beyond which a rope has other frequencies, for which its class makes the cache anew; 0 for none."""
    ropes = scalings(subject.text)
    return next((rope.limit for rope in ropes if rope.kind == "longrope"), 0)


def _across_switch(subject: Subject) -> Iterator[Trial]:
    """Generate three tokens past the length at which a rope switches, with a cache and without; nothing for other ropes."""
    n = _switch(subject) + 3 - _STEPS
    if n <= 0 or no_generate(subject):
        return
    prompt = subject.prompt("row 0", n)

    def pairs(s: Subject, n_steps: int) -> list[Pair]:
        first, second = (generated(s, prompt, n_steps, use_cache=kept) for kept in (False, True))
        return [Pair(first, second)]

    yield Trial(f"{n} tokens, {_STEPS} more", _STEPS, (n, n), pairs)


def without_cache(subject: Subject, prompt: Ids, n_steps: int) -> Decoded:
    """Choose each token from a forward over all tokens so far."""
    ids, logits = prompt, []
    for _ in range(n_steps):
        logits.append(subject.walk(Way((ids,), cached=False)).logits[0, -1])
        ids += (int(logits[-1].argmax()),)
    return Decoded(ids[len(prompt) :], torch.stack(logits))


def with_cache(
    subject: Subject,
    prompt: Ids,
    n_steps: int,
    *,
    placed: bool = True,
    past: int = 0,
    cache: Any = None,
) -> Decoded:
    """Choose each token from a forward over the last one and the cache.

    After a ``cache`` of ``past`` tokens the rest of the prompt is fed one by one.
    """
    ids, logits = prompt, []
    if cache is None:
        cache = subject.new_cache(Way((ids + (0,) * n_steps,)))
    for stop in range(past + 1, len(prompt)) if past else ():
        cache, past = subject.step(Way((ids,), placed=placed), past, stop, cache).cache, stop
    for _ in range(n_steps):
        step = subject.step(Way((ids,), placed=placed), past, len(ids), cache)
        cache, past = step.cache, len(ids)
        logits.append(step.logits[0, -1])
        ids += (int(logits[-1].argmax()),)
    subject.settle()
    return Decoded(ids[len(prompt) :], torch.stack(logits))


def generated(
    subject: Subject, prompt: Ids, n_steps: int, cache: Any = None, *, use_cache: bool | None = None
) -> Decoded:
    """Decode with generate() and the model's settings, made greedy: they name its cache."""
    settings = copy.deepcopy(subject.model.generation_config)
    settings.update(
        max_new_tokens=n_steps,
        do_sample=False,
        num_beams=1,
        repetition_penalty=1.0,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    if use_cache is not None:
        settings.use_cache = use_cache
        forks.drop_cache(subject.model)
    inputs = subject.generation_inputs(Way((prompt,)))
    if cache is not None:
        settings.cache_implementation = None  # generate() refuses both a cache and its name
        ids = inputs.get("decoder_input_ids", inputs.get("input_ids"))
        inputs |= forks.behind_cache(subject.model, cache, ids)
    cost = 20 if subject.float64 else 4
    with subject.arithmetic(), progress.forwards(n_steps, inputs, times=cost):
        output = subject.model.generate(**inputs, generation_config=settings)
    subject.settle()
    ids = output.sequences[0, -len(output.logits) :].tolist()
    return Decoded(tuple(ids), torch.stack([logits[0] for logits in output.logits]))


RELATIONS = (
    TokenRelation(
        "greedy without cache = with cache",
        ("decoder", "cache"),
        lambda _subject: None,
        partial(_trials, without_cache),
    ),
    TokenRelation(
        "greedy by hand = generate()",
        ("decoder", "cache"),
        no_generate,
        partial(_trials, generated),
    ),
    TokenRelation(
        "generate() past a switch of rope = without a cache",
        (),
        _too_far,
        _across_switch,
    ),
)
