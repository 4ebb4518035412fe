"""Where the state of a model changes on a line of commits: which of them to try, as few as possible.

Positions count commits, from 0 for the reference. Commits that are suspected are tried first, each together with
the one before it, so that what is found is proven by both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

State = str
"""What a model does at a commit: equal texts for equal bits."""
Ask = "Callable[[Sequence[int]], Awaitable[Mapping[int, State | None]]]"
"""Returns the states of positions; None for a commit that cannot be tried."""
_FEW = 8
"""Positions up to which two neighbours in the middle are asked; of more, those that part them evenly."""
MAX_CHANGES = 4
"""Changes that are followed to their commits; of further ones it is only said between which commits they are."""


class Change(NamedTuple):
    """Two positions with different states, and what could not be tried between them."""

    before: int
    after: int
    skipped: tuple[int, ...] = ()


class SearchResult(NamedTuple):
    """What a search found."""

    changes: tuple[Change, ...]
    states: dict[int, State | None]
    open: tuple[Change, ...] = ()
    """Changes that were not followed: between two positions others were not tried."""


async def search(
    last: int,
    tiers: Sequence[Iterable[int]],
    ask: Callable[[Sequence[int]], Awaitable[Mapping[int, State | None]]],
    width: int = 2,
) -> SearchResult:
    """Return the changes between position 0 and the last one.

    ``tiers`` are suspected positions, the most suspected first; in the end every position is one. ``width`` is
    how many are tried at the same time.
    """
    states = dict(await ask([0, last]))
    if states[0] == states[last] or None in (states[0], states[last]):
        return SearchResult((), states)
    for tier in (*tiers, range(1, last)):
        marks = sorted({p for number in tier for p in (number - 1, number) if 0 < p < last})
        while asked := list(_next(states, marks, width)):
            states |= await ask(asked)
    followed: list[Change] = []
    rest: list[Change] = []
    for before, after in steps(states):
        inside = tuple(range(before + 1, after))
        is_followed = states.keys() >= {*inside}
        (followed if is_followed else rest).append(Change(before, after, inside))
    return SearchResult(tuple(followed), states, tuple(rest))


def steps(states: Mapping[int, State | None]) -> Iterator[tuple[int, int]]:
    """Yield neighbours, of those that could be tried, with different states."""
    tried = sorted(position for position, state in states.items() if state is not None)
    for before, after in pairwise(tried):
        if states[before] != states[after]:
            yield before, after


def _next(states: Mapping[int, State | None], marks: Sequence[int], width: int) -> Iterator[int]:
    """Yield the positions to try next: those between two states, for the first changes only."""
    intervals = []
    for before, after in [*steps(states)][:MAX_CHANGES]:
        inside = [mark for mark in marks if before < mark < after and mark not in states]
        if inside:
            intervals.append(inside)
    for inside in intervals:
        yield from _chosen(inside, max(1, width // len(intervals)))


def _chosen(inside: Sequence[int], width: int) -> Iterator[int]:
    middle = len(inside) // 2
    if len(inside) <= width:
        yield from inside
    elif width == 1:
        yield inside[middle]
    elif len(inside) <= _FEW:
        # marks come in pairs, a commit and the one before it
        start = middle - 1 if (middle - 1) % 2 == 0 else middle
        yield from inside[start : start + 2]
    else:
        yield from (inside[len(inside) * part // (width + 1)] for part in range(1, width + 1))
