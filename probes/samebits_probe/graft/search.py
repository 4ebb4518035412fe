"""Which sets of suspects are worth trying to find the smallest one that restores equal bits?

Imports nothing but Python: the oracle, which runs the model with a set of suspects replaced, is
given. Nothing is taken for granted of it, not even that a larger set restores what a smaller one
did: a suspect that is put in can break what another one mends. So a search only chooses what to
run; what may be claimed follows from the runs themselves (samebits/grafts/judge.py).
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Set = frozenset[str]
MOST_GROUPS = 8
"""Suspects up to which each is tried by itself; of more, those of one kind are tried together."""


_MOST_TOGETHER = 2
"""Suspects of the sets that are tried where all together do not restore."""


class Spent(Exception):  # noqa: N818  the end of the budget ends the search, and is no error
    """No more runs may be made."""


def grouped(kinds: Sequence[tuple[str, str]]) -> list[Set]:
    """Return the suspects, given as (kind, name) in the order of data flow, as at most a few sets.

    The kind with the most suspects is put together first.
    """
    groups: dict[tuple[str, str], list[str]] = {(kind, name): [name] for kind, name in kinds}
    while len(groups) > MOST_GROUPS:
        sizes: dict[str, int] = {}
        for kind, _ in groups:
            sizes[kind] = sizes.get(kind, 0) + 1
        widest = max(sizes, key=lambda kind: sizes[kind])
        if sizes[widest] == 1:
            break
        merged = [name for kind, name in kinds if kind == widest]
        rebuilt: dict[tuple[str, str], list[str]] = {}
        for key, names in groups.items():
            rebuilt.setdefault((widest, "") if key[0] == widest else key, names)
        rebuilt[widest, ""] = merged
        groups = rebuilt
    return [frozenset(names) for names in groups.values()]


class Search:
    """Tries sets until the smallest that restores is known, or the budget is spent."""

    def __init__(self, restores: Callable[[Set], bool | None], budget: int) -> None:
        """Take the oracle, whose None says that a set does not run, and how many runs it may make."""
        self.tried: dict[Set, bool | None] = {}
        self.spent = False
        self._restores = restores
        self._budget = budget

    def run(self, groups: Sequence[Set], hint: Set = frozenset()) -> None:
        """Try what is worth it; :attr:`tried` then holds every set that was run.

        ``hint`` is what restored elsewhere: where it does here, too, no other set is looked for.
        """
        try:
            if hint and self._try([hint]):
                self._without_needless([frozenset({name}) for name in sorted(hint)])
                return
            found = self._coarse(list(groups))
            if found is not None:
                self._fine(found)
        except Spent:
            self.spent = True

    def _try(self, members: Iterable[Set]) -> bool:
        chosen: Set = frozenset().union(*members)
        if chosen not in self.tried:
            if len(self.tried) >= self._budget:
                raise Spent
            self.tried[chosen] = self._restores(chosen)
        return bool(self.tried[chosen])

    def _coarse(self, groups: list[Set]) -> list[Set] | None:
        """Return the groups of a set that restores, the fewest that the budget could show.

        All together are those that run at all; two that do not run alone may run as a pair.
        """
        alone = [group for group in groups if self._try([group])]
        if alone:
            return [alone[0]]
        running = [group for group in groups if self.tried[group] is not None]
        found = None
        for together in (running, groups):
            if found is None and len(together) > 1 and self._try(together):
                found = self._without_needless(together)
        most = len(found) if found is not None else _MOST_TOGETHER + 1
        for size in range(2, min(most, len(groups))):
            for some in combinations(groups, size):
                if self._try(some):
                    return list(some)
        return found

    def _without_needless(self, groups: list[Set]) -> list[Set]:
        """Return ``groups``, which restore, without those that can be spared one after the other.

        What comes late in the flow of data goes first: what is left is where it begins.
        """
        needed = list(groups)
        going = True
        while going:
            going = False
            for group in reversed(needed):
                rest = [other for other in needed if other != group]
                if rest and self._try(rest):
                    needed, going = rest, True
                    break
        return needed

    def _fine(self, found: list[Set]) -> None:
        """Take apart the groups of several suspects that a set which restores has."""
        needed = list(found)
        for group in found:
            if len(group) > 1:
                rest = [other for other in needed if other != group]
                needed = rest + self._narrowed(group, rest)
        singles = [frozenset({name}) for group in needed for name in sorted(group)]
        self._without_needless(singles)

    def _narrowed(self, group: Set, rest: list[Set]) -> list[Set]:
        """Return fewer suspects of a group that still restore beside ``rest``: halves of halves."""
        parts = [frozenset({name}) for name in sorted(group)]
        for part in parts if len(parts) <= MOST_GROUPS else ():
            if self._try([*rest, part]):
                return [part]
        width = len(parts) // 2
        while width:
            chunks = [parts[i : i + width] for i in range(0, len(parts), width)]
            spared = next(
                (c for c in chunks if len(c) < len(parts) and self._spare(c, parts, rest)), None
            )
            if spared is not None:
                parts = [part for part in parts if part not in spared]
                width = min(width, len(parts) // 2)
            else:
                width //= 2
        return parts

    def _spare(self, chunk: list[Set], parts: list[Set], rest: list[Set]) -> bool:
        return self._try([*rest, *(part for part in parts if part not in chunk)])
