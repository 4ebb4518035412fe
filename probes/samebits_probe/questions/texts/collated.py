"""What the data collators of a release make of the rows that a tokenizer gives.

Each public collator is made with what its constructor names, and gets the same rows: ids with their masks, and labels
as it takes them. One that draws numbers, as for masked tokens, is left out.
"""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from samebits_probe.cell.outcomes import Outcomes

Facts = dict[str, Any]
COLLATED = "collators"
_BEGINS = ("DataCollator", "DefaultDataCollator")
_OPTIONS: tuple[Facts, ...] = (
    {},
    {"mlm": False},
    # every token that may be masked is masked
    {"mlm_probability": 1.0, "mask_replace_prob": 1.0, "random_replace_prob": 0.0},
    {"pad_to_multiple_of": 8},
    {"return_tensors": "np"},
)
"""Arguments of constructors, where a class names all of them."""
_ROWS: Facts = {"return_special_tokens_mask": True, "return_token_type_ids": False}
"""Whether there are token types by default is the release's own affair, and no collator's."""
_SEEDS = (0, 1)


def collated(outcomes: Outcomes, tokenizer: Any, names: list[str], texts: list[str]) -> None:
    """Give the rows of a batch to each collator, with labels and without; ``names`` are those of its texts."""
    rows = [dict(tokenizer(text, **_ROWS)) for text in texts]
    ends = (("", [*_labelled(rows)]), (", without labels", [rows]))
    for case, kind, options in _asked():
        made = _made(tokenizer, kind, options)
        for end, kinds in ends:
            first, second = (_given(made, kinds, seed) for seed in _SEEDS)
            if first is not None and first == second:
                outcomes.name_members(case + end, names)
                outcomes.add(COLLATED, case + end, first)


def _asked() -> Iterator[tuple[str, Any, Facts]]:
    """Yield case, class and arguments."""
    module = importlib.import_module("transformers.data.data_collator")
    for name, kind in sorted(vars(module).items()):
        if not name.startswith(_BEGINS) or not inspect.isclass(kind) or name.endswith("Mixin"):
            continue
        taken = inspect.signature(kind).parameters
        for options in _OPTIONS:
            if options.keys() <= taken.keys():
                shown = ", ".join(f"{n}={value!r}" for n, value in options.items())
                yield f"{name}({shown})", kind, options


def _made(tokenizer: Any, kind: Any, options: Facts) -> Any:
    """Return a collator; None if it refuses the tokenizer, as one without a token for masks."""
    takes_tokenizer = "tokenizer" in inspect.signature(kind).parameters
    try:
        return kind(**({"tokenizer": tokenizer} if takes_tokenizer else {}), **options)
    except Exception:  # noqa: BLE001  a refusal is no result of a collator
        return None


def _given(made: Any, kinds: list[list[Facts]], seed: int) -> list[list[Any]] | None:
    """Return the outputs for the first kind of rows that a collator takes, each with its name."""
    for features in copy.deepcopy(kinds):  # some are changed in place
        torch.manual_seed(seed)
        np.random.seed(seed)
        try:
            outputs = made(features)
        except Exception:  # noqa: BLE001, S112  it takes other labels, or none
            continue
        return [[str(name), *_plain(value)] for name, value in sorted(outputs.items())]
    return None


def _labelled(rows: list[Facts]) -> Iterator[list[Facts]]:
    """Yield rows with a label for each token, with one for each row, and with several choices in each."""
    yield [row | {"labels": list(row["input_ids"])} for row in rows]
    yield [row | {"label": i % 2} for i, row in enumerate(rows)]
    yield [{n: [value, value] for n, value in row.items()} | {"label": 1} for row in rows]


def _plain(value: Any) -> list[Any]:
    """Return an output as numbers in lists, behind its dtype."""
    numbers = _numbers(value)
    shown = getattr(value, "dtype", type(value).__name__)
    return [str(shown), *(numbers if isinstance(numbers, list) else [numbers])]


def _numbers(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_numbers(part) for part in value]
    return _numbers(value.tolist()) if hasattr(value, "tolist") else value
