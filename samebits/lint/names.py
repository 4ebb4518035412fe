"""The table of names that transformers has in every minor release since 4.48: ``names.json``."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from samebits.lint.releases import Releases, runs


@cache
def table() -> dict[str, Any]:
    """Return names.json: for each module and name the releases that have it, as a mask."""
    text = files("samebits.lint").joinpath("names.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


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


def layer_releases(layer: str, pattern: str) -> Releases | None:
    """Return the releases in which the facts of a layer's forward match a pattern such as ``?0?``.

    A fact is ``10t``: takes past_key_value, takes past_key_values, returns a tensor. It is empty
    in a release without the layer. None if no release matches, or all that have the layer do.
    """
    facts: list[str] | None = table()["layers"].get(layer)
    if facts is None:
        return None
    marks = [fnmatchcase(fact, pattern) for fact in facts]
    if not any(marks) or all(mark or not fact for mark, fact in zip(marks, facts, strict=True)):
        return None
    return runs(zip(table()["releases"], marks, strict=True))
