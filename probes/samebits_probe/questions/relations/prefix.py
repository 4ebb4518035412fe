"""A prefix's cache, copied for each of two prompts, compared with two fresh runs.

It follows transformers' guide to its caches: the prefix is fed once, its cache is copied with
``copy.deepcopy``, and each prompt continues from its own copy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

from samebits_probe.model import forks
from samebits_probe.questions.relations.cases import longest
from samebits_probe.questions.relations.greedy import generated, no_generate, with_cache
from samebits_probe.questions.relations.tokens import Decoded, Pair, TokenRelation, Trial
from samebits_probe.questions.relations.ways import Ids, Subject, Way

_PREFIX_LENGTH, _NEW_TOKENS = 28, 3
_STEPS, _GENERATED_STEPS = 20, 8
"""Tokens of the loop and of generate(); another relation compares these two."""


def _too_short(subject: Subject) -> str | None:
    n_needed = 2 + _NEW_TOKENS + _STEPS
    is_short = longest(subject) < n_needed
    return f"it needs {n_needed} positions, and the model has fewer" if is_short else None


def _trials(subject: Subject) -> Iterator[Trial]:
    """Continue in a loop, one token at a time, and in generate(), as users do."""
    n = min(_PREFIX_LENGTH, longest(subject) - _NEW_TOKENS - _STEPS)
    prefix = subject.prompt("prefix", n)
    prompts = [prefix + subject.prompt(f"continued {i}", _NEW_TOKENS + 1)[1:] for i in (1, 2)]
    label = f"{n} tokens cached and copied for 2 prompts of {_NEW_TOKENS} more"
    range_of_lengths = (
        n,
        n + _NEW_TOKENS,
    )  # from there on a fresh run's keys are made at the same lengths
    description = f"{label}, fed one by one, {_STEPS} chosen"
    yield Trial(
        description, _STEPS, range_of_lengths, partial(_pairs, prefix, prompts, by_hand=True)
    )
    if no_generate(subject) is None and forks.generates_behind_cache(subject.model):
        description = f"{label}, handed to generate(), {_GENERATED_STEPS} chosen"
        yield Trial(
            description,
            _GENERATED_STEPS,
            range_of_lengths,
            partial(_pairs, prefix, prompts, by_hand=False),
        )


def _pairs(
    prefix: Ids, prompts: list[Ids], subject: Subject, n_steps: int, *, by_hand: bool
) -> list[Pair]:
    decode = with_cache if by_hand else generated
    fresh = [decode(subject, prompt, n_steps) for prompt in prompts]
    reused = _decode_from_copies(subject, prefix, prompts, n_steps, by_hand=by_hand)
    numbered = enumerate(zip(fresh, reused, strict=True), start=1)
    return [Pair(first, second, f"prompt {i} of {len(prompts)}") for i, (first, second) in numbered]


def _decode_from_copies(
    subject: Subject, prefix: Ids, prompts: list[Ids], n_steps: int, *, by_hand: bool
) -> list[Decoded]:
    """Decode every prompt after a copy of one cache of the prefix.

    Before generate() the prefix gets what a tokenizer gives, ids and mask, as in the guide. It is fed
    again before each prompt, as a model may keep its positions in the modules.
    """
    room = max(map(len, prompts)) + n_steps - len(prefix)
    way = Way((prefix,), mask=((1,) * len(prefix),), placed=by_hand)
    cache: Any = None
    decoded = []
    for prompt in prompts:
        empty = subject.new_cache(Way((prefix + (0,) * room,)))
        filled = subject.step(way, 0, len(prefix), empty).cache
        cache = filled if cache is None else cache
        copied = copy.deepcopy(cache)
        if by_hand:
            decoded.append(with_cache(subject, prompt, n_steps, past=len(prefix), cache=copied))
        else:
            decoded.append(generated(subject, prompt, n_steps, cache=copied))
    return decoded


RELATION = TokenRelation("prefix cache reused", ("decoder", "cache object"), _too_short, _trials)
