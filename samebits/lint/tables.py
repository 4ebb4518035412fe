"""The tables of the lint: files of JSON beside its modules."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def content_of(name: str) -> dict[str, Any]:
    """Return the content of a table, such as ``names.json``."""
    text = files("samebits.lint").joinpath(name).read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content
