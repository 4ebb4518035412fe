"""Variants of a tiny model: values of its config's switches, of which a few models have every pair."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import transformers

from samebits_probe.jobs import auto
from samebits_probe.model import switches
from samebits_probe.process.failure import in_one_line

_MAX_REASON = 120
_Tried = tuple[Any, Sequence[switches.Choice], dict[str, str]]
"""A model, the values that it has, and why it has not the other ones."""


def variant(made: auto.Made, number: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return a variant of a tiny model that runs, and what it changes; ``number`` counts from 1.

    Values that the class refuses beside the others are left out, and the facts name them.
    """
    last = deque(enumerate(islice(_variants(made, seed), number), 1), maxlen=1)
    count = last[0][0] if last else 0
    if count < number:
        raise auto.NoneMade(
            f"the config of {made.model.config.model_type} has no variant {number}: the last one is {count}, as every "
            "pair of values of its switches is in one of them"
        )
    model, taken, refused = last[0][1]
    if not taken:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise auto.NoneMade(f"its class refuses variant {number} of the config: {reasons}")
    return model, {"values": [each.name for each in taken], "refused": refused}


def _variants(made: auto.Made, seed: int) -> Iterator[_Tried]:
    """Yield the variants of a tiny model. What the class refuses in one decides which values the next ones have."""
    config = made.model.config.to_dict()
    listed = switches.switches(config, _source)
    cover = switches.Cover(listed)
    while (row := cover.row()) is not None:
        wanted = switches.chosen(listed, row)
        yield (tried := _tried(made, config, wanted, seed))
        places = dict(zip([place for place, value in enumerate(row) if value], wanted, strict=True))
        lost = [place for place, choice in places.items() if choice not in tried[1]]
        ran = tuple(0 if place in lost else value for place, value in enumerate(row))

        def runs(*these: int, places: Any = places) -> bool:
            return not _tried(made, config, [places[place] for place in these], seed)[2]

        cover.add(ran, {pair for place in lost for pair in _refused(row, place, places, runs)})


def _tried(
    made: auto.Made, config: dict[str, Any], wanted: Sequence[switches.Choice], seed: int
) -> _Tried:
    """Return a model, the values that it has, and why it has not the other ones."""
    try:
        return _with(made, config, wanted, seed), wanted, {}
    except Exception:  # noqa: BLE001  a class may refuse a config in any way
        return _one_by_one(made, config, wanted, seed)


def _refused(
    row: switches.Row, lost: int, places: Collection[int], runs: Callable[..., bool]
) -> Iterator[switches.Pair]:
    """Yield the pairs of a row by which a class refuses the value of a switch, of all of them if no single one does."""
    others = {place for place in places if place != lost and not runs(place, lost)}
    if len(others) + 1 == len(places) and not runs(lost):
        others = set()
    for pair in switches.pairs(row):
        ends = {place for place, _ in pair}
        if lost in ends and (not others or ends & others):
            yield pair


def _one_by_one(
    made: auto.Made, config: dict[str, Any], wanted: Sequence[switches.Choice], seed: int
) -> _Tried:
    model: Any = made.model
    taken: list[switches.Choice] = []
    refused: dict[str, str] = {}
    for choice in wanted:
        try:
            model = _with(made, config, [*taken, choice], seed)
        except Exception as error:  # noqa: BLE001, PERF203  a class may refuse a config in any way
            refused[choice.name] = in_one_line(error, _MAX_REASON)
        else:
            taken.append(choice)
    return model, taken, refused


def _with(
    made: auto.Made, config: dict[str, Any], choices: Sequence[switches.Choice], seed: int
) -> Any:
    """Return a model with values of switches. Raises what its class raises."""
    values = switches.changed(config, choices)
    limits = auto.Limits(seed, {}, auto.LIMITS[1])
    model = auto.constructed(type(made.model), type(made.model.config), values, limits)
    for _, kwargs in made.prompts:
        auto.require_numbers(model, kwargs)
    return model


def _source(model_type: str) -> str:
    """Return the code of the models of a type; '' if it has none."""
    if model_type not in transformers.CONFIG_MAPPING:
        return ""
    try:
        file = auto.modeling(transformers.CONFIG_MAPPING[model_type]).__file__
    except ImportError:
        return ""
    return Path(file).read_text("utf-8") if file else ""
