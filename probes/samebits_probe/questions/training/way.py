"""A way to train: what it computes, and two of them that must agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from samebits_probe.questions.training.batches import Batch
from samebits_probe.questions.training.learner import Learner

Results = dict[str, torch.Tensor]
"""What a way computes: ``loss``, ``logits``, or gradients by parameter."""
Way = Callable[[Learner], Results]


class NoMeaning(Exception):  # noqa: N818  that a relation does not apply is a result
    """The relation does not apply to this model; the message says why."""


class Setting(NamedTuple):
    """What the relations are tried on."""

    main: Batch
    head: str
    images: Batch | None = None
    """Rows with an image in each; None for a model that takes none among its tokens."""

    @property
    def shifted(self) -> bool:
        """True if the loss leaves out the first label of each row."""
        return self.head == "causal-lm"


class Relation(NamedTuple):
    """Two ways that must agree."""

    name: str
    ways: Callable[[Learner, Setting], tuple[Way, Way]]
    """Raises :class:`NoMeaning` where the relation does not apply."""


def lesson(batch: Batch) -> Way:
    """Return the way that learns from a batch as it is: its loss and all gradients."""
    return lambda learner: learner.lesson(batch)


def learned(kwargs: dict[str, Any]) -> Way:
    """Return the way that learns from these arguments again: their loss and all gradients."""

    def way(learner: Learner) -> Results:
        return {"loss": learner.learn(kwargs).loss.detach().reshape(1), **learner.gradients()}

    return way
