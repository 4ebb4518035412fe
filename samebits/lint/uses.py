"""The table of what calls, attributes, tasks and variables transformers has in every minor release since 4.48: ``uses.json``."""

from __future__ import annotations

from functools import cache
from typing import Any

from samebits.lint.releases import Releases, runs
from samebits.lint.tables import content_of


def table() -> dict[str, Any]:
    """Return uses.json: part -> name -> what it has -> the releases that have it, as a mask."""
    return content_of("uses.json")


@cache
def names(part: str) -> frozenset[str]:
    """Return every name that some class or function of a part lacks in some release."""
    return frozenset(name for rows in table()[part].values() for name in rows)


def without(part: str, owner: str, name: str) -> Releases | None:
    """Return the releases in which a class or function lacks a name; None if the table does not say so."""
    mask = table()[part].get(owner, {}).get(name)
    if mask is None:
        return None
    return runs(zip(table()["releases"], (mark == "0" for mark in mask), strict=True))


def passed(owner: str, method: str) -> frozenset[str]:
    """Return the arguments that a method of a class got since 4.48, and that the library passes it by name."""
    return frozenset(table()["overrides"].get(f"{owner}.{method}", ()))
