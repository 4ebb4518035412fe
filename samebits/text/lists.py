"""Lists: as the command line takes them, and equal values of several keys together."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


def comma_list(text: str) -> tuple[str, ...]:
    """Return the items of a list that commas separate, each once and without blanks around it."""
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def group_equal(values: Mapping[str, T]) -> list[tuple[list[str], T]]:
    """Return equal values once, each with all of its keys before it."""
    groups: dict[str, list[str]] = {}
    for key, value in values.items():
        # the repr, because it makes NaN equal to NaN
        groups.setdefault(repr(value), []).append(key)
    return [(keys, values[keys[0]]) for keys in groups.values()]
