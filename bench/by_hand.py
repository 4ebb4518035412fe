"""Compares two dumps of bare.py tensor by tensor, run by a stack's interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch


def main(arguments: list[str]) -> None:
    """Print how many tensors are equal, of all that both dumps hold."""
    reference, candidate = (
        list(_tensors(torch.load(path, weights_only=False))) for path in arguments
    )
    same = sum(
        a.shape == b.shape and torch.equal(a, b) for a, b in zip(reference, candidate, strict=False)
    )
    print(same, min(len(reference), len(candidate)))


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    for inner in value.values() if isinstance(value, dict) else ():
        yield from _tensors(inner)
    for inner in value if isinstance(value, (list, tuple)) else ():
        yield from _tensors(inner)


if __name__ == "__main__":
    main(sys.argv[1:])
