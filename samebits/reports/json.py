"""report.json: the whole report for programs, the same bytes for the same report."""

from __future__ import annotations

import json
import math

from samebits.records.report import Report
from samebits.reports.json_refs import put_in, share

NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""What stands for the numbers that JSON does not have; pydantic reads it back."""

OPENED = 4
"""Levels that are written one entry per line: report, rows, row, cells. So each cell is one line."""


def render(report: Report) -> str:
    """Return report.json, fields in the order of the records.

    A field that holds its default is left out: the schema says which that is. The format's
    version never is, because a reader needs it before the schema. What stands in many places is
    in ``shared``, and references to it stand there: see :mod:`samebits.reports.json_refs`.
    """
    found, shared = share(report.model_dump(mode="json", exclude_defaults=True))
    told = {"schema_version": report.schema_version} | found | {"shared": shared}
    try:
        text = _text(told, OPENED)
        text.encode()
    except ValueError:  # JSON lacks the number or the character: rare, and slow to look for
        text = _text(_writable(told), OPENED)
    return f"{text}\n"


def read(text: str | bytes) -> Report:
    """Return the report that report.json holds."""
    return Report.model_validate(put_in(json.loads(text)))


def _text(value: object, opened: int, indent: str = "") -> str:
    """Return JSON with its outer levels opened and the inner ones closely packed."""
    if not opened or not value or not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    inner = f"{indent} "
    entries = (
        [
            f"{json.dumps(k, ensure_ascii=False)}: {_text(v, opened - 1, inner)}"
            for k, v in value.items()
        ]
        if isinstance(value, dict)
        else [_text(entry, opened - 1, inner) for entry in value]
    )
    left, right = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(f"{inner}{entry}" for entry in entries)
    return f"{left}\n{lines}\n{indent}{right}"


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
