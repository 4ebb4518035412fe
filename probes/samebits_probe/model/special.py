"""A prompt with the token ids to which a model gives a meaning: begin, end, separator, mask, padding.

Seeded ids avoid them, and a model may treat them in a way of its own: ESM rescales its embeddings by the
share of mask tokens, RoBERTa counts positions from what is no padding, BART pools at the end token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from samebits_probe.model import inputs

NAME = "special"

_FIELDS = ("bos_token_id", "cls_token_id", "mask_token_id", "sep_token_id", "eos_token_id")
"""Fields of a config and of a tokenizer, in the order in which a row has them."""

_LONG, _SHORT = 9, 4
"""Least number of seeded ids in the row without padding, and that of the padded row."""


def ids_of(sources: Iterable[Any], vocabulary: int) -> list[int]:
    """Return the ids that a config or a tokenizer names, each once; padding aside."""
    named = (id_ for source in sources for field in _FIELDS for id_ in _listed(source, field))
    return [*dict.fromkeys(id_ for id_ in named if 0 <= id_ < vocabulary)]


def make(ids: list[int], config: Any) -> inputs.Inputs:
    """Return two rows: seeded ids with special ones between them, and a shorter one.

    ``config`` is that of the tokens. Padding is on the right, as tokenizers of encoders pad.
    """
    long = [*_alternating(inputs.seeded_ids(f"{NAME}[0]", max(2 * len(ids), _LONG), config), ids)]
    # each id once: T5 and BART pool at the end token, and all rows must have the same number of them
    short = [*ids[:1], *inputs.seeded_ids(f"{NAME}[1]", _SHORT, config), *ids[1:][-1:]]
    return inputs.padded([long, short], inputs.pad_id(config), masked=True, side="right")


def _alternating(seeded: list[int], ids: list[int]) -> Iterator[int]:
    """Yield every special id behind two seeded ones; the first special id comes first."""
    yield from ids[:1]
    pairs = (seeded[i : i + 2] for i in range(0, len(seeded), 2))
    for pair, id_ in zip_longest(pairs, ids[1:]):
        yield from pair or ()
        yield from () if id_ is None else (id_,)


def _listed(source: Any, field: str) -> list[int]:
    value = getattr(source, field, None)
    values = value if isinstance(value, (list, tuple)) else [value]
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
