"""The table of names that transformers has in every minor release since 4.48: ``names.json``."""

from __future__ import annotations

import json
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
