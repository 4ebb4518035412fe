"""report.json: the whole report for programs; equal reports give equal bytes."""

from __future__ import annotations

import json
import math
from typing import Any

from samebits.records.report import Report

NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Strings for the numbers that JSON does not have; pydantic reads them back."""

EXPANDED_LEVELS = 4
"""Levels that are written one entry per line: report, rows, row, cells. So each cell is one
line."""


def render(report: Report) -> str:
    """Return report.json, with fields in the order of the records.

    A field that holds its default is left out: the schema gives the default. The format version
    and the hash are always written, because a reader needs them before the schema.
    """
    fields = report.model_dump(mode="json", exclude_defaults=True)
    head = {"schema_version": report.schema_version, "hash_algorithm": report.hash_algorithm}
    return text_of(head | fields)


def text_of(document: dict[str, Any]) -> str:
    """Return the text of report.json with this content."""
    try:
        text = _text(document, EXPANDED_LEVELS)
        text.encode()
    except ValueError:  # JSON has no such number or character: rare, and slow to look for
        text = _text(_writable(document), EXPANDED_LEVELS)
    return f"{text}\n"


def read(text: str | bytes) -> Report:
    """Return the report that the text of report.json holds."""
    return Report.model_validate_json(text)


def _text(value: object, expanded: int, indent: str = "") -> str:
    """Return JSON with one entry per line on the outer levels; inner levels are compact."""
    if not expanded or not value or not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    inner = f"{indent} "
    entries = (
        [
            f"{json.dumps(k, ensure_ascii=False)}: {_text(v, expanded - 1, inner)}"
            for k, v in value.items()
        ]
        if isinstance(value, dict)
        else [_text(entry, expanded - 1, inner) for entry in value]
    )
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(f"{inner}{entry}" for entry in entries)
    return f"{opening}\n{lines}\n{indent}{closing}"


def _writable(value: object) -> object:
    """Return ``value`` with everything replaced that a strict JSON reader would refuse.

    pydantic writes non-finite numbers as strings, too, but raises an error for lone surrogates,
    which come from file names that are not UTF-8. They are replaced by the text of their escape.
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
