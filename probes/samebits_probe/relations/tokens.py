"""Do two ways to decode greedily choose the same tokens, and from the same logits.

A relation of tokens is a list of trials. Each decodes one prompt or several both ways; what is
told of it is the first step at which the tokens part, and how far the logits are apart up to there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model.distance import broken, distance, gaps
from samebits_probe.relations import rope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits_probe.relations.ways import Subject

Facts = dict[str, Any]


class Decoded(NamedTuple):
    """Tokens chosen greedily, and the logits that chose each."""

    ids: tuple[int, ...]
    logits: torch.Tensor


class Pair(NamedTuple):
    """The same prompt decoded both ways; ``label`` says which prompt, if there are several."""

    one: Decoded
    other: Decoded
    label: str = ""


class Trial(NamedTuple):
    """One shape of a relation of tokens."""

    label: str
    n_steps: int
    lengths: tuple[int, int]
    """Between which the two ways make the keys of the same tokens at other lengths."""
    pairs: Callable[[Subject, int], list[Pair]]
    """Decodes that many tokens of each prompt, both ways."""


class TokenRelation(NamedTuple):
    """A relation's name, what a model needs for it, and its trials."""

    name: str
    needs: tuple[str, ...]
    lacks: Callable[[Subject], str | None]
    trials: Callable[[Subject], Iterator[Trial]]


class Tried(NamedTuple):
    """One pair of a trial, and how far it is apart in the cell's dtype and in float64."""

    trial: Trial
    pair: Pair
    own: Facts
    promoted: Facts | None

    def broken(self, dtype: torch.dtype) -> bool:
        """Return True if the two ways compute different functions."""
        return self.promoted is not None and broken(self.own, self.promoted, dtype)

    def parts(self) -> bool:
        """Return True if other tokens were chosen."""
        return split(self.pair)["step"] is not None


def attempt(
    subject: Subject,
    trial: Trial,
    promoted: Callable[[Callable[[Subject], list[Facts]]], list[Facts] | None],
) -> list[Tried]:
    """Decode a trial's prompts both ways, in float64 as far as it takes to see the difference."""
    pairs = trial.pairs(subject, trial.n_steps)
    own = [apart(pair) for pair in pairs]
    finer: list[Facts] | None = None
    if any(facts["n_differ"] for facts in own):
        n_steps = max(map(_telling, pairs)) + 1
        finer = promoted(lambda s: [apart(pair) for pair in trial.pairs(s, n_steps)])
    return [
        Tried(trial, pair, facts, finer[i] if finer and facts["n_differ"] else None)
        for i, (pair, facts) in enumerate(zip(pairs, own, strict=True))
    ]


def facts(subject: Subject, name: str, tried: list[Tried]) -> Facts:
    """Return a relation of tokens: the first pair that is broken or parts, or the farthest apart."""
    dtype = subject.dtype
    shown = max(tried, key=lambda t: (t.broken(dtype), t.parts(), t.own["max_abs"]))
    trial, pair = shown.trial, shown.pair
    return {
        "relation": name,
        "case": f"{trial.label}, {pair.label}" if pair.label else trial.label,
        "holds": not shown.parts() and not shown.broken(dtype),
        "distance": shown.own,
        "promoted": shown.promoted,
        "split": split(pair),
        "tried": len(tried),
        "note": _note(subject, shown),
    }


def _note(subject: Subject, shown: Tried) -> str:
    first, last = shown.trial.lengths
    return rope.of_lengths(subject, range(first, last + 1)) if shown.own["n_differ"] else ""


def split(pair: Pair) -> Facts:
    """Return the first step at which the tokens differ, and the margin of the choice there."""
    one, other = pair.one, pair.other
    steps = enumerate(zip(one.ids, other.ids, strict=False))
    step = next((index for index, (a, b) in steps if a != b), None)
    margin = None
    if step is not None:
        first, second = torch.topk(one.logits[step].double(), 2).values.tolist()
        margin = first - second
    return {"step": step, "margin": margin, "one": list(one.ids), "other": list(other.ids)}


def apart(pair: Pair) -> Facts:
    """Return the distance of the logits up to where the tokens part: later ones have no pair."""
    return distance(*_common(pair), logits=True)


def _common(pair: Pair) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of the steps that both took after the same tokens.

    generate() hands out a float32 copy of what chose the token, whatever the model's dtype is.
    """
    one, other = pair.one, pair.other
    step = split(pair)["step"]
    stop = min(len(one.ids), len(other.ids)) if step is None else step + 1
    wide = torch.promote_types(one.logits.dtype, other.logits.dtype)
    return one.logits[:stop].to(wide), other.logits[:stop].to(wide)


def _telling(pair: Pair) -> int:
    """Return the first step that differs by half as much as the one that differs most."""
    one, other = _common(pair)
    largest = gaps(one, other).reshape(one.shape).amax(-1)
    return int((largest >= largest.max() / 2).int().argmax())
