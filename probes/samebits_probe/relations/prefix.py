"""Does a prefix's cache, copied for each of two prompts, give what two fresh runs give.

As transformers' guide to its caches does it: the prefix is fed once, its cache is copied with
``copy.deepcopy``, and each prompt goes on from a copy of its own.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from samebits_probe.model import forks
from samebits_probe.relations.cases import longest
from samebits_probe.relations.greedy import generated, no_generate, with_cache
from samebits_probe.relations.tokens import Pair, TokenRelation, Trial
from samebits_probe.relations.ways import Ids, Subject, Way

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits_probe.relations.tokens import Decoded

_PREFIX, _NEW = 28, 3
_STEPS, _GENERATED = 20, 8
"""Tokens chosen by hand and by generate(), whose relation to the loop by hand is another one."""


def _room(subject: Subject) -> str | None:
    need = 2 + _NEW + _STEPS
    short = longest(subject) < need
    return f"it needs {need} positions, and the model has fewer" if short else None


def _trials(subject: Subject) -> Iterator[Trial]:
    """Go on by hand, one token at a time, and as users do, in generate()."""
    n = min(_PREFIX, longest(subject) - _NEW - _STEPS)
    prefix = subject.prompt("prefix", n)
    prompts = [prefix + subject.prompt(f"continued {i}", _NEW + 1)[1:] for i in (1, 2)]
    label = f"{n} tokens cached and copied for 2 prompts of {_NEW} more"
    both = n, n + _NEW  # from there on a fresh run's keys are made at the same lengths
    said = f"{label}, fed one by one, {_STEPS} chosen"
    yield Trial(said, _STEPS, both, partial(_pairs, prefix, prompts, by_hand=True))
    if no_generate(subject) is None and forks.generates_behind_cache(subject.model):
        said = f"{label}, handed to generate(), {_GENERATED} chosen"
        yield Trial(said, _GENERATED, both, partial(_pairs, prefix, prompts, by_hand=False))


def _pairs(
    prefix: Ids, prompts: list[Ids], subject: Subject, n_steps: int, *, by_hand: bool
) -> list[Pair]:
    decode = with_cache if by_hand else generated
    fresh = [decode(subject, prompt, n_steps) for prompt in prompts]
    reused = _reused(subject, prefix, prompts, n_steps, by_hand=by_hand)
    found = enumerate(zip(fresh, reused, strict=True), start=1)
    return [Pair(one, other, f"prompt {i} of {len(prompts)}") for i, (one, other) in found]


def _reused(
    subject: Subject, prefix: Ids, prompts: list[Ids], n_steps: int, *, by_hand: bool
) -> list[Decoded]:
    """Feed the prefix once and decode every prompt behind a copy of what it left."""
    room = max(map(len, prompts)) + n_steps - len(prefix)
    cache: Any = subject.new_cache(Way((prefix + (0,) * room,)))
    cache = subject.step(Way((prefix,)), 0, len(prefix), cache).cache
    found = []
    for prompt in prompts:
        own = copy.deepcopy(cache)
        if by_hand:
            found.append(with_cache(subject, prompt, n_steps, past=len(prefix), cache=own))
        else:
            found.append(generated(subject, prompt, n_steps, cache=own))
    return found


RELATION = TokenRelation("prefix cache reused", ("decoder", "cache object"), _room, _trials)
