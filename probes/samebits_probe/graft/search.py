"""Search for the smallest set of suspects that restores equal bits.

Imports only the standard library: the caller passes the oracle, which runs the model with a set of
suspects replaced. The search assumes nothing about the oracle, not even that a larger set restores
what a smaller one does, as one suspect can break what another one repairs. The search only chooses
the runs; the claims follow from the runs themselves (samebits/grafts/judge.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

Set = frozenset[str]
MAX_GROUPS = 8
"""Suspects up to which each is tried separately; of more, one kind is tried together."""

_MAX_TOGETHER = 2
"""Size of the sets that are tried if all suspects together do not restore."""


class Spent(Exception):  # noqa: N818  the end of the budget is not an error
    """The budget of runs is spent."""


def grouped(kinds: Sequence[tuple[str, str]]) -> list[Set]:
    """Return the suspects, given as (kind, name) in the order of data flow, in a few sets.

    The kind with the most suspects is merged first.
    """
    groups: dict[tuple[str, str], list[str]] = {(kind, name): [name] for kind, name in kinds}
    while len(groups) > MAX_GROUPS:
        sizes = Counter(kind for kind, _ in groups)
        largest = max(sizes, key=lambda kind: sizes[kind])
        if sizes[largest] == 1:
            break
        merged = [name for kind, name in kinds if kind == largest]
        groups = {(largest, "") if k[0] == largest else k: names for k, names in groups.items()}
        groups[largest, ""] = merged
    return [frozenset(names) for names in groups.values()]


class Search:
    """Tries sets until the smallest that restores is known, or the budget is spent."""

    def __init__(self, restores: Callable[[Set], bool | None], budget: int) -> None:
        """Take the oracle (None for a set that does not run) and the budget of runs."""
        self.tried: dict[Set, bool | None] = {}
        self.spent = False
        self._restores = restores
        self._budget = budget

    def run(self, groups: Sequence[Set], hint: Set = frozenset()) -> None:
        """Try sets; :attr:`tried` then holds every set that was run.

        ``hint`` is a set that restored elsewhere. If it restores here too, the search ends with it.
        """
        try:
            if hint and self._try([hint]):
                self._minimal([frozenset({name}) for name in sorted(hint)])
                return
            if (restoring := self._restoring_groups(list(groups))) is not None:
                self._refine(restoring)
        except Spent:
            self.spent = True

    def _try(self, members: Iterable[Set]) -> bool:
        chosen: Set = frozenset().union(*members)
        if chosen not in self.tried:
            if len(self.tried) >= self._budget:
                raise Spent
            self.tried[chosen] = self._restores(chosen)
        return bool(self.tried[chosen])

    def _restoring_groups(self, groups: list[Set]) -> list[Set] | None:
        """Return the groups of a set that restores, the fewest that the budget allows to find.

        The groups that run are tried together first, then all: two that fail alone may run as a
        pair.
        """
        single = [group for group in groups if self._try([group])]
        if single:
            return [single[0]]
        running = [group for group in groups if self.tried[group] is not None]
        restoring = None
        for candidates in (running, groups):
            if restoring is None and len(candidates) > 1 and self._try(candidates):
                restoring = self._minimal(candidates)
        size_limit = len(restoring) if restoring is not None else _MAX_TOGETHER + 1
        for size in range(2, min(size_limit, len(groups))):
            for subset in combinations(groups, size):
                if self._try(subset):
                    return list(subset)
        return restoring

    def _minimal(self, groups: list[Set]) -> list[Set]:
        """Return ``groups``, which restore, without those that can be removed one by one.

        The latest in the data flow is removed first, so the origin of the difference remains.
        """
        needed = list(groups)
        shrinking = True
        while shrinking:
            shrinking = False
            for group in reversed(needed):
                rest = [g for g in needed if g != group]
                if rest and self._try(rest):
                    needed, shrinking = rest, True
                    break
        return needed

    def _refine(self, groups: list[Set]) -> None:
        """Split the groups of several suspects in a set that restores."""
        needed = list(groups)
        for group in groups:
            if len(group) > 1:
                rest = [g for g in needed if g != group]
                needed = rest + self._narrow(group, rest)
        self._minimal([frozenset({name}) for group in needed for name in sorted(group)])

    def _narrow(self, group: Set, rest: list[Set]) -> list[Set]:
        """Return fewer suspects of a group that still restore with ``rest``, by halving."""
        parts = [frozenset({name}) for name in sorted(group)]
        for part in parts if len(parts) <= MAX_GROUPS else ():
            if self._try([*rest, part]):
                return [part]
        width = len(parts) // 2
        while width:
            chunks = [parts[i : i + width] for i in range(0, len(parts), width)]
            removable = next(
                (c for c in chunks if len(c) < len(parts) and self._can_spare(c, parts, rest)), None
            )
            if removable is not None:
                parts = [part for part in parts if part not in removable]
                width = min(width, len(parts) // 2)
            else:
                width //= 2
        return parts

    def _can_spare(self, chunk: list[Set], parts: list[Set], rest: list[Set]) -> bool:
        return self._try([*rest, *(part for part in parts if part not in chunk)])
