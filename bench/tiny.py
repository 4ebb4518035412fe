"""A matrix.yaml of tiny models, one of each type, in environments that have what some classes need to be made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

PACKAGES = ("pillow", "scipy", "timm", "torchvision")
"""What some classes need to be made at all; users of these types have it."""


def matrix(types: Iterable[str], releases: Iterable[str]) -> dict[str, Any]:
    """Return a matrix.yaml of types and releases."""
    return {
        "version": 1,
        "environments": [
            {"id": release, "transformers": release, "packages": [*PACKAGES]}
            for release in releases
        ],
        "models": {name: {"build": {"architecture": name, "auto": True}} for name in types},
    }
