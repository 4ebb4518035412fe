"""What ``tokenizer.pad`` makes of rows in each form in which they come from a loader: dicts, batches, tensors, mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import numpy as np
import torch
from transformers import BatchEncoding

from samebits_probe.cell.outcomes import Outcomes

Facts = dict[str, Any]
PADDED = "pad"
_KEYS = ("input_ids", "attention_mask")


class Table(MutableMapping[str, Any]):
    """A mapping that goes over its rows, as a TensorDict of the package tensordict does; its names are its keys()."""

    def __init__(self, columns: Facts) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Any:
        """Return a column."""
        return self._columns[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a column."""
        self._columns[name] = value

    def __delitem__(self, name: str) -> None:
        """Remove a column."""
        del self._columns[name]

    def __contains__(self, name: object) -> bool:
        """Return True for the name of a column."""
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        """Refuse: one row has no rows in it."""
        raise TypeError("iteration over one row")

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._columns)

    def keys(self) -> Any:
        """Return the names of the columns."""
        return self._columns.keys()

    def items(self) -> Any:
        """Return the columns with their names."""
        return self._columns.items()


_FORMS: dict[str, Callable[[list[Facts]], Any]] = {
    "dicts": lambda rows: rows,
    "BatchEncodings": lambda rows: [BatchEncoding(row) for row in rows],
    "one dict of lists": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    "dicts of arrays": lambda rows: [_of(np.array, row) for row in rows],
    "dicts of tensors": lambda rows: [_of(torch.tensor, row) for row in rows],
    "mappings that go over rows, as TensorDicts": lambda rows: [Table(dict(row)) for row in rows],
}


def _of(kind: Callable[[Any], Any], row: Facts) -> Facts:
    return {name: kind(value) for name, value in row.items()}


def padded(outcomes: Outcomes, tokenizer: Any, names: list[str], texts: list[str]) -> None:
    """Pad the rows of a batch in each form; ``names`` are those of its texts."""
    encoded = [dict(tokenizer(text, return_token_type_ids=False)) for text in texts]
    rows = [{name: row[name] for name in _KEYS if name in row} for row in encoded]
    for form, made in _FORMS.items():
        outcomes.name_members(form, names)
        outcomes.call(PADDED, form, lambda made: _rows(tokenizer.pad(made(rows))), made)


def _rows(batch: Any) -> list[list[int]]:
    """Return the rows of each name, which are lists, arrays or tensors."""
    return [
        [int(number) for number in row] for name in _KEYS if name in batch for row in batch[name]
    ]
