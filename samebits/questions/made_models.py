"""Where a made model answered for a large one, as the sections of several questions say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from samebits.records.made import MadeModel
from samebits.records.report import Row
from samebits.text.blocks import bullets, codes, page
from samebits.text.markdown import EMPTY, Markdown, fill

MAX_MODELS = 6
"""Limit for the models that a line names."""
MAX_LINES = 60
"""Limit for the lines; report.json has them all."""
MADE = (
    "A tiny model has the same class, kinds of layers, heads and windows as the large one, and "
    "seeded weights. It shows what the code of the release does, and nothing about the weights of "
    "the model: sizes of differences are its own. With relations: true in the model's entry of "
    "matrix.yaml, the model itself is checked."
)


class Asked(Protocol):
    """What a cell answered, or a made model in place of its model."""

    @property
    def asked_of(self) -> MadeModel | None:
        """The made model; None: the model itself answered."""


def made_models(rows: Iterable[Row], signals_of: Callable[[Row], Mapping[str, Asked]]) -> Markdown:
    """Return which made models were asked; empty if each model was asked itself.

    ``signals_of`` returns what the cells of a row answered, by stack.
    """
    stacks: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for stack, signal in signals_of(row).items():
            if signal.asked_of is not None:
                stacks.setdefault((row.model, signal.asked_of.in_words), []).append(stack)
    models: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (model, words), where in stacks.items():
        models.setdefault((tuple(where), words), []).append(model)
    sentences = [
        fill("{} in {}: checked with {}.", codes(names, MAX_MODELS), ", ".join(where), words)
        for (where, words), names in models.items()
    ]
    return page([bullets(sentences[:MAX_LINES]), fill("{}", MADE) if sentences else EMPTY])
