"""Lists: as the command line takes them, and equal values of several keys together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")


def comma_list(text: str) -> tuple[str, ...]:
    """Return the items of a list that commas separate, each once and without blanks around it."""
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def group_equal(values: Mapping[str, T]) -> list[tuple[list[str], T]]:
    """Return equal values once, each with all of its keys before it."""
    # the repr, because it makes NaN equal to NaN
    groups = grouped(values, lambda key: repr(values[key]))
    return [(keys, values[keys[0]]) for keys in groups.values()]


def joined(lines: Iterable[T], *fields: str) -> list[T]:
    """Return dataclass instances, joined where they are equal but for a field, one field after the other.

    The fields are tuples.
    """
    for field in fields:
        groups: dict[Any, dict[Any, None]] = {}
        for line in lines:
            rest = replace(line, **{field: ()})  # type: ignore[type-var]
            groups.setdefault(rest, {}).update(dict.fromkeys(getattr(line, field)))
        lines = [replace(rest, **{field: tuple(values)}) for rest, values in groups.items()]
    return list(lines)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by their keys, in the order of the first item of each key."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
