"""report.json: the whole report for programs, the same bytes for the same report."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.document import Report

NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""What stands for the numbers that JSON does not have; pydantic reads it back."""


def render(report: Report) -> str:
    """Return report.json, fields in the order of the records."""
    return (
        json.dumps(_writable(report.model_dump(mode="json")), indent=2, ensure_ascii=False) + "\n"
    )


def _writable(value: object) -> object:
    """Return ``value`` with everything replaced that a strict JSON reader would refuse.

    pydantic writes non-finite numbers as strings too, but stops at lone surrogates, which a
    file name that is no UTF-8 brings; they become the text of their escape.
    """
    if isinstance(value, dict):
        return {_writable(key): _writable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_writable(entry) for entry in value]
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return NOT_FINITE[str(value)]
    return value
