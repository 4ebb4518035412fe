"""What transformers has in any of its releases: releases, model types, classes; and torch's dtypes.

known.json is written by tests/matrix/make_known.py from the sources of one release per minor release.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from packaging.version import Version

from samebits.base.errors import shown

DTYPES = frozenset(
    [
        "auto",
        "bfloat16",
        "bit",
        "bits16",
        "bits1x8",
        "bits2x4",
        "bits4x2",
        "bits8",
        "bool",
        "cdouble",
        "cfloat",
        "chalf",
        "complex128",
        "complex32",
        "complex64",
        "double",
        "float",
        "float16",
        "float32",
        "float4_e2m1fn_x2",
        "float64",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "half",
        "int",
        "int1",
        "int16",
        "int2",
        "int3",
        "int32",
        "int4",
        "int5",
        "int6",
        "int64",
        "int7",
        "int8",
        "long",
        "qint32",
        "qint8",
        "quint2x4",
        "quint4x2",
        "quint8",
        "short",
        "uint1",
        "uint16",
        "uint2",
        "uint3",
        "uint32",
        "uint4",
        "uint5",
        "uint6",
        "uint64",
        "uint7",
        "uint8",
    ]
)
"""Names of dtypes in torch 2.13, and auto."""
_COMMON_DTYPES = {"fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}


@cache
def _table() -> dict[str, list[str]]:
    text = files("samebits.matrix").joinpath("known.json").read_text("utf-8")
    table: dict[str, list[str]] = json.loads(text)
    return table


def releases() -> list[str]:
    """Return every release of transformers from 4.48.0 on, oldest first."""
    return _table()["releases"]


def of_family(version: str) -> list[str]:
    """Return the known releases of ``4.57``, ``5.x`` or ``4.57.1``."""
    family = version.removesuffix(".x")
    return [known for known in releases() if f"{known}.".startswith(f"{family}.")]


def is_covered(version: str) -> bool:
    """Return True if the types and classes of a release are in the table."""
    return Version(version) <= Version(releases()[-1])


def types() -> list[str]:
    """Return every model_type that a release knows."""
    return _table()["types"]


def classes() -> list[str]:
    """Return every class that a modeling file of a release defines, without parts of models."""
    return _table()["classes"]


def type_of(architectures: object) -> str | None:
    """Return the model_type that the first of a config's ``architectures`` probably has, or None."""
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    if not isinstance(name, str) or name not in classes():
        return None
    begun = [t for t in types() if name.casefold().startswith(re.sub("[^a-z0-9]", "", t))]
    return max(begun, key=len, default=None)


def near(word: str, names: Iterable[str]) -> str:
    """Return `: did you mean "llama"?` for a word that is near one of the names, else nothing."""
    name = _COMMON_DTYPES.get(word.casefold())
    by_folded = {other.casefold(): other for other in names} | ({name: name} if name else {})
    matches = [name] if name else difflib.get_close_matches(word[:80].casefold(), by_folded, n=1)
    return f": did you mean {shown(by_folded[matches[0]])}?" if matches else ""
