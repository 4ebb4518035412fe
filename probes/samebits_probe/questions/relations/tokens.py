"""Relations of tokens: two ways to decode greedily choose the same tokens from the same logits.

A relation of tokens is a list of trials. Each trial decodes one prompt or several in both ways. The
result is the first step at which the tokens differ, and the distance of the logits up to there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from samebits_probe.model.distance import broken, distance, gaps
from samebits_probe.questions.relations import rope
from samebits_probe.questions.relations.ways import Subject

Facts = dict[str, Any]


class Decoded(NamedTuple):
    """Greedily chosen tokens, and the logits of each choice."""

    ids: tuple[int, ...]
    logits: torch.Tensor


class Pair(NamedTuple):
    """The same prompt decoded both ways; ``label`` names the prompt if there are several."""

    first: Decoded
    second: Decoded
    label: str = ""


class Trial(NamedTuple):
    """One shape of a relation of tokens."""

    label: str
    n_steps: int
    lengths: tuple[int, int]
    """Range in which the two ways make the keys of the same tokens at different lengths."""
    pairs: Callable[[Subject, int], list[Pair]]
    """Decodes the given number of tokens of each prompt, both ways."""


class TokenRelation(NamedTuple):
    """A relation's name, what a model needs for it, and its trials."""

    name: str
    needs: tuple[str, ...]
    lacks: Callable[[Subject], str | None]
    trials: Callable[[Subject], Iterator[Trial]]


class Tried(NamedTuple):
    """One pair of a trial, and its distance in the cell's dtype and in float64."""

    trial: Trial
    pair: Pair
    native: Facts
    promoted: Facts | None

    def broken(self, dtype: torch.dtype) -> bool:
        """Return True if the two ways compute different functions."""
        return self.promoted is not None and broken(self.native, self.promoted, dtype)

    def parts(self) -> bool:
        """Return True if the two ways chose different tokens."""
        return split(self.pair)["step"] is not None


def attempt(
    subject: Subject,
    trial: Trial,
    promoted: Callable[[Callable[[Subject], list[Facts]]], list[Facts] | None],
) -> list[Tried]:
    """Decode a trial's prompts both ways, and in float64 as many steps as show the difference."""
    pairs = trial.pairs(subject, trial.n_steps)
    in_native = [pair_distance(pair) for pair in pairs]
    in_float64: list[Facts] | None = None
    if any(facts["n_differ"] for facts in in_native):
        n_steps = max(map(_telling_step, pairs)) + 1
        in_float64 = promoted(lambda s: [pair_distance(pair) for pair in trial.pairs(s, n_steps)])
    return [
        Tried(trial, pair, facts, in_float64[i] if in_float64 and facts["n_differ"] else None)
        for i, (pair, facts) in enumerate(zip(pairs, in_native, strict=True))
    ]


def facts(subject: Subject, name: str, attempts: list[Tried]) -> Facts:
    """Return a relation's facts: of the first broken or diverging pair, else the most distant."""
    dtype = subject.dtype
    worst = max(attempts, key=lambda t: (t.broken(dtype), t.parts(), t.native["max_abs"]))
    trial, pair = worst.trial, worst.pair
    return {
        "relation": name,
        "case": f"{trial.label}, {pair.label}" if pair.label else trial.label,
        "holds": not worst.parts() and not worst.broken(dtype),
        "distance": worst.native,
        "promoted": worst.promoted,
        "split": split(pair),
        "tried": len(attempts),
        "note": _note(subject, worst),
    }


def _note(subject: Subject, worst: Tried) -> str:
    first, last = worst.trial.lengths
    return rope.of_lengths(subject, range(first, last + 1)) if worst.native["n_differ"] else ""


def split(pair: Pair) -> Facts:
    """Return the first step at which the tokens differ, and the margin of the choice there."""
    first, second = pair.first, pair.second
    steps = enumerate(zip(first.ids, second.ids, strict=False))
    step = next((index for index, (a, b) in steps if a != b), None)
    margin = None
    if step is not None:
        best, runner_up = torch.topk(first.logits[step].double(), 2).values.tolist()
        margin = best - runner_up
    return {"step": step, "margin": margin, "one": list(first.ids), "other": list(second.ids)}


def pair_distance(pair: Pair) -> Facts:
    """Return the distance of the logits up to where the tokens differ; later ones have no pair."""
    return distance(*_common_logits(pair), logits=True)


def _common_logits(pair: Pair) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of the steps that follow the same tokens in both ways.

    generate() returns a float32 copy of the logits, whatever the model's dtype is.
    """
    first, second = pair.first, pair.second
    step = split(pair)["step"]
    stop = min(len(first.ids), len(second.ids)) if step is None else step + 1
    dtype = torch.promote_types(first.logits.dtype, second.logits.dtype)
    return first.logits[:stop].to(dtype), second.logits[:stop].to(dtype)


def _telling_step(pair: Pair) -> int:
    """Return the first step that differs by half as much as the one that differs most."""
    first, second = _common_logits(pair)
    largest = gaps(first, second).reshape(first.shape).amax(-1)
    return int((largest >= largest.max() / 2).int().argmax())
