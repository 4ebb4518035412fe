"""The answer of a pipeline as fields: what must be equal, and numbers, which may round."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from samebits_probe.cell.outcomes import plain, short_hash
from samebits_probe.model.tensor import dtype_name
from samebits_probe.questions.processors import arrays

Field = dict[str, Any]
_MAX_FIELDS = 160
_MAX_TEXT = 400
_MANY = 32
"""Numbers of a list from which on it is one array."""


def fields(answer: Any) -> dict[str, Field]:
    """Return place -> field, in the order of the answer; ``[0].label`` is the label of the first entry."""
    fields = dict(_fields("", answer))
    if rest := [*fields.items()][_MAX_FIELDS:]:
        fields = dict([*fields.items()][:_MAX_FIELDS])
        text = json.dumps([(place, field["exact"]) for place, field in rest])
        fields["…"] = {"exact": f"{len(rest)} more fields, {short_hash(text.encode())}"}
    return fields


def _fields(place: str, value: Any) -> Iterator[tuple[str, Field]]:
    if isinstance(value, dict):
        yield f"{place} keys".strip(), {"exact": json.dumps(sorted(map(str, value)))}
        for key, item in value.items():
            yield from _fields(f"{place}.{key}".lstrip("."), item)
    elif isinstance(value, (list, tuple)) and not _is_array_of_numbers(value):
        yield f"{place} length".strip(), {"exact": str(len(value))}
        for i, item in enumerate(value):
            yield from _fields(f"{place}[{i}]", item)
    else:
        yield place, _field(value)


def _field(value: Any) -> Field:
    if isinstance(value, (float, np.floating)):
        number = float(value)
        is_finite = bool(np.isfinite(number))
        return (
            {"exact": "number", "numbers": [number.hex()]} if is_finite else {"exact": str(number)}
        )
    if isinstance(value, (str, bool, int, np.integer)) or value is None:
        plain_value = int(value) if isinstance(value, np.integer) else value
        text = plain(json.dumps(plain_value, ensure_ascii=False))
        cut = f"{text[:_MAX_TEXT]}… {short_hash(text.encode())}"
        return {"exact": text if len(text) <= _MAX_TEXT else cut}
    if hasattr(value, "tobytes") and hasattr(value, "mode"):
        digest = arrays.facts(np.asarray(value))["hash"]
        return {"exact": f"image {value.mode} {value.size[0]} x {value.size[1]}, {digest}"}
    if hasattr(value, "shape") or isinstance(value, (list, tuple)):
        return _array(value)
    return {"exact": f"a {type(value).__name__}"}


def _array(value: Any) -> Field:
    facts = arrays.facts(np.asarray(value) if isinstance(value, (list, tuple)) else value)
    shape = " x ".join(map(str, facts["shapes"][0])) or "scalar"
    form = f"{_dtype(value, facts)} {shape}"
    if "n" not in facts or not facts["dtype"].startswith("float"):
        return {"exact": f"{form}, {facts['hash']}"}
    form += f", {facts['n_special']} not finite" if facts["n_special"] else ""
    return {"exact": form, "numbers": [number.hex() for number in facts["projections"]]}


def _dtype(value: Any, facts: dict[str, Any]) -> str:
    """Return the dtype of an array; of the projections of bfloat16 it would be float32."""
    return dtype_name(value.dtype) if hasattr(value, "detach") else facts["dtype"]


def _is_array_of_numbers(value: Any) -> bool:
    """Return True for a list, maybe of lists, of many numbers."""
    count, inner = 1, value
    while isinstance(inner, (list, tuple)) and inner:
        count *= len(inner)
        inner = inner[0]
    return count >= _MANY and isinstance(inner, float)
