"""Variants of a tiny model: values of its config's switches, of which a few models have every pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import transformers

from samebits_probe.jobs import auto
from samebits_probe.model import switches
from samebits_probe.process.failure import in_one_line

_MAX_REASON = 120


def variant(made: auto.Made, number: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return a variant of a tiny model that runs, and what it changes; ``number`` counts from 1.

    Values that the class refuses beside the others are left out, and the facts name them.
    """
    config = made.model.config.to_dict()
    listed = switches.switches(config, _source)
    rows = switches.rows(listed, number)
    if len(rows) < number:
        raise auto.NoneMade(
            f"the config of {made.model.config.model_type} has no variant {number}: the last one is {len(rows)}, as every "
            "pair of values of its switches is in one of them"
        )
    wanted = switches.chosen(listed, rows[-1])
    try:
        model, taken, refused = _with(made, config, wanted, seed), wanted, dict[str, str]()
    except Exception:  # noqa: BLE001  a class may refuse a config in any way
        model, taken, refused = _one_by_one(made, config, wanted, seed)
    if not taken:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise auto.NoneMade(f"its class refuses variant {number} of the config: {reasons}")
    return model, {"values": [each.name for each in taken], "refused": refused}


def _one_by_one(
    made: auto.Made, config: dict[str, Any], wanted: Sequence[switches.Choice], seed: int
) -> tuple[Any, list[switches.Choice], dict[str, str]]:
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
