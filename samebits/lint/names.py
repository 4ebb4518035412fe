"""The tables of names that transformers has: ``names.json`` by minor release since 4.48, ``every.json`` those of any."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Any

from samebits.lint.releases import Releases, between, runs
from samebits.lint.tables import content_of

_ALIKE = 0.85
"""The share of characters from which two names are taken for one with a slip."""


def table() -> dict[str, Any]:
    """Return names.json: for each module and name the releases that have it, as a mask."""
    return content_of("names.json")


def _every() -> dict[str, str]:
    """Return every.json: for each module the names that any release has; ``*``: those that any module may have."""
    return content_of("every.json")


@cache
def names_of(module: str) -> frozenset[str] | None:
    """Return the names that any known release has in a module; None if the table does not have the module."""
    names = _every().get(module)
    if names is None or module == "*":
        return None
    often = "" if module == "transformers" else _every()["*"]
    return frozenset(f"{names} {often}".split())


def modules_with(name: str) -> list[str]:
    """Return the modules of the library, but those of models, that have a name in any known release."""
    own = (m for m in _every() if m != "*" and ".models." not in m)
    return [module for module in own if name in _every()[module].split()]


def nearest(module: str, name: str) -> str:
    """Return the name of a module that is most like another one; '' if none is."""
    own = _every().get(module, "").split()
    return next(iter(get_close_matches(name, own, 1, _ALIKE)), "")


def never() -> Releases:
    """Return all releases of the table, for what none of them has."""
    order = table()["releases"]
    return between(order[0], order[-1])


def mask_of(module: str, name: str) -> str | None:
    """Return ``111…000``, one character per release of the table; None if all have the name."""
    rows = table()["names"].get(module)
    if rows is None:
        return None
    mask = rows.get(name, rows.get("*"))
    return str(mask) if mask is not None else None


def releases_without(mask: str) -> Releases:
    """Return the releases that lack a name."""
    return runs(zip(table()["releases"], (mark == "0" for mark in mask), strict=True))


def layer_releases(layer: str, fact: str, *, holds: bool = True) -> Releases | None:
    """Return the releases with a layer of whose forward a fact holds, or does not hold.

    ``fact``: the argument that forward takes, or ``tensor``, which it returns. None if this is so in no release, or in
    all that have the layer.
    """
    masks: dict[str, str] | None = table()["layers"].get(layer)
    if masks is None:
        return None
    wanted = str(int(holds))
    has_layer = [mark == "1" for mark in masks["layer"]]
    so = [has and mark == wanted for has, mark in zip(has_layer, masks[fact], strict=True)]
    if not any(so) or so == has_layer:
        return None
    return runs(zip(table()["releases"], so, strict=True))
