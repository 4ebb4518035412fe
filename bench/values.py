"""Two JSON files compared value by value, so that no rewording hides a number, a key or an order.

Numbers, booleans, nulls, the lengths of lists and the order of their items must be equal, and strings must be
equal after rewording. A key of one side alone is a difference, unless a list in ``bench/`` names it:

* ``bench/added.txt``: paths of keys that only the new side has.
* ``bench/renamed.txt``: ``path before => path after``.

A path names the keys from the top, without the indexes of lists: ``rows.cells.ladder.steps``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bench.wording import Pair, Wording, repeatable

if TYPE_CHECKING:
    Path = tuple[str | int, ...]

UNREPEATABLE = {"seconds", "cpu", "started", "samebits", "matrix_digest"}
"""Keys whose values no two runs share: durations, the time of day, the version, and the digest of a
matrix as one version reads it. Only their types and lengths are compared."""
SORTED_BY_COST = "spent"
"""The path of the costs of a run, a list that is sorted by CPU seconds; it is compared by kind of job."""
DIGESTS = "files"
"""The path of the digests of the pages, which hold durations; the pages themselves are compared. Their
order followed that in which stacks were built."""
VERSION = "schema_version"
"""The path of the number that may change if the keys do."""


class Keys:
    """The keys that a change added or renamed, and which of them occurred so far."""

    def __init__(self, added: Iterable[str] = (), renamed: Iterable[Pair] = ()) -> None:
        self.added = set(added)
        self.renamed = dict(renamed)
        self._used: set[str] = set()

    def name_after(self, path: Path, key: str) -> str:
        """Return the new name of a key."""
        before = _keys(*path, key)
        if before not in self.renamed:
            return key
        self._used.add(before)
        return self.renamed[before].removeprefix(_keys(*path, ""))

    def is_added(self, path: Path) -> bool:
        """Return whether only the new side may have a key."""
        if _keys(*path) not in self.added:
            return False
        self._used.add(_keys(*path))
        return True

    def unused(self) -> list[str]:
        """Return the paths that occurred in no file."""
        return sorted((self.added | self.renamed.keys()) - self._used)


class Comparison:
    """Compares two JSON values under the wording and the keys of a change."""

    def __init__(self, wording: Wording, keys: Keys) -> None:
        self.wording = wording
        self.keys = keys

    def differences(self, old: Any, new: Any, path: Path = ()) -> Iterator[str]:
        """Yield one line for each value that differs: its path, the old and the new value."""
        if type(old) is not type(new):
            yield _line(path, old, new)
        elif isinstance(old, dict):
            yield from self._of_objects(old, new, path)
        elif isinstance(old, list):
            yield from self._of_lists(old, new, path)
        elif not self._are_equal(old, new, path):
            yield _line(path, old, new)

    def _of_objects(self, old: dict[str, Any], new: dict[str, Any], path: Path) -> Iterator[str]:
        old = {self.keys.name_after(path, key): value for key, value in old.items()}
        for key in old.keys() - new.keys():
            yield f"{_place((*path, key))}: only before"
        for key in new.keys() - old.keys():
            if not self.keys.is_added((*path, key)):
                yield f"{_place((*path, key))}: only after"
        shared = [key for key in old if key in new]
        is_ordered = _keys(*path) != DIGESTS
        if is_ordered and shared != [key for key in new if key in old]:
            yield f"{_place(path)}: keys in another order"
        for key in shared:
            yield from self.differences(old[key], new[key], (*path, key))

    def _of_lists(self, old: list[Any], new: list[Any], path: Path) -> Iterator[str]:
        if len(old) != len(new):
            yield f"{_place(path)}: {len(old)} items before, {len(new)} after"
            return
        if _keys(*path) == SORTED_BY_COST:
            old, new = (sorted(costs, key=lambda cost: str(cost["kind"])) for costs in (old, new))
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from self.differences(before, after, (*path, index))

    def _are_equal(self, old: Any, new: Any, path: Path) -> bool:
        keys = [key for key in path if isinstance(key, str)]
        if keys[:1] == [DIGESTS] or (keys[-1:] and keys[-1] in UNREPEATABLE):
            return True
        if keys == [VERSION]:
            return bool(self.keys.added or self.keys.renamed) or old == new
        # as JSON: a NaN is equal to itself, and a phrase can be anchored by the quotes around a string
        before, after = (repeatable(json.dumps(value, ensure_ascii=False)) for value in (old, new))
        return before == after or self.wording.reworded(before) == after


def _keys(*path: str | int) -> str:
    return ".".join(key for key in path if isinstance(key, str))


def _place(path: Path) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def _line(path: Path, old: Any, new: Any) -> str:
    before, after = (json.dumps(value, ensure_ascii=False)[:300] for value in (old, new))
    return f"{_place(path)}: {before} -> {after}"
