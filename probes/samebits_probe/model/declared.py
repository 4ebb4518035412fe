"""Arguments of forward that matrix.yaml declares under ``inputs:``, checked against a signature.

This module does not use torch. A config is an object with fields, and a signature is plain data, so
that tests of the host can cover the rules. model.input_set makes the tensors.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from samebits_probe.model.choice import NotFed, Shapes, Signature, written

INTEGERS = {
    "int64": (-(2**63), 2**63),
    "int32": (-(2**31), 2**31),
    "int16": (-(2**15), 2**15),
    "int8": (-(2**7), 2**7),
    "uint8": (0, 2**8),
}
"""Dtype -> its smallest value, and the one after its largest."""
_MAX_ELEMENTS = 1 << 28
_MAX_LISTED_NAMES = 12
_SET_KEYS = frozenset({"file", "function", "arguments"})

Fact = dict[str, Any]


class Seeded(NamedTuple):
    """Seeded numbers from ``low`` up to, but without, ``high``."""

    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float


class Masked(NamedTuple):
    """A mask: for each row of the first dimension, the positions that are 1."""

    shape: tuple[int, ...]
    dtype: str
    rows: tuple[tuple[int, int], ...]
    """First position that is 1, and the position after the last; one pair stands for all rows."""


class Constant(NamedTuple):
    """A constant: a scalar or a text as it is, a list as a tensor."""

    value: Any
    dtype: str | None


def is_set(prompt: Mapping[str, Any]) -> bool:
    """Return True for an input set, False for a prompt."""
    return bool(_SET_KEYS & prompt.keys())


def resolved(declared: Fact, config: Any) -> Seeded | Masked | Constant:
    """Return a declared argument with every size and bound as a number."""
    if "value" in declared:
        return Constant(declared["value"], declared.get("dtype"))
    shape = tuple(_size(size, config) for size in declared["shape"])
    if (count := math.prod(shape)) > _MAX_ELEMENTS:
        raise NotFed(
            f"the shape {list(shape)} has {count:,} elements: write at most {_MAX_ELEMENTS:,}"
        )
    dtype = str(declared.get("dtype") or "")
    if "mask" in declared:
        return Masked(shape, dtype or "int64", _mask_rows(declared["mask"], shape))
    low = _bound(declared.get("low", 0 if dtype in INTEGERS else -1), config)
    high = _bound(declared.get("high", 1), config)
    if dtype == "bool":
        low, high = 0, 2
    return _fitting(Seeded(shape, dtype, low, high))


def _fitting(seeded: Seeded) -> Seeded:
    if seeded.low >= seeded.high:
        raise NotFed(f"low is {seeded.low:g} and high is {seeded.high:g}: write a high above low")
    if seeded.dtype not in INTEGERS:
        return seeded
    least, after = INTEGERS[seeded.dtype]
    whole = int(seeded.low) == seeded.low and int(seeded.high) == seeded.high
    if not whole or seeded.low < least or seeded.high > after:
        raise NotFed(
            f"{seeded.dtype} has whole numbers from {least} to {after - 1}, and low is "
            f"{seeded.low:g} and high is {seeded.high:g}"
        )
    return seeded._replace(low=int(seeded.low), high=int(seeded.high))


def _size(size: int | str, config: Any) -> int:
    value = field(config, size) if isinstance(size, str) else size
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NotFed(f"the config's {size} is {value!r}, which is no size: write a number")
    return value


def _bound(bound: float | str, config: Any) -> float:
    value = field(config, bound) if isinstance(bound, str) else bound
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotFed(f"the config's {bound} is {value!r}, which is no bound: write a number")
    return value


def field(config: Any, path: str) -> Any:
    """Return the value of a field of a config, ``a.b`` for a field of a nested config."""
    value = config
    try:
        for name in path.split("."):
            value = value[name] if isinstance(value, dict) else getattr(value, name)
    except (AttributeError, KeyError):
        raise NotFed(
            f"the config has no field {path}: {_likely(path, list(fields(config)))}"
        ) from None
    return value


def fields(config: Any, prefix: str = "") -> Iterable[str]:
    """Yield the dotted names of the numbers of a config."""
    entries = config if isinstance(config, dict) else dict(getattr(config, "__dict__", {}))
    names = dict.fromkeys(getattr(config, "attribute_map", ()), 1)
    for name, value in (entries | names).items():
        if str(name).startswith("_"):
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            yield f"{prefix}{name}"
        elif not prefix and (isinstance(value, dict) or hasattr(value, "to_dict")):
            yield from fields(value, f"{name}.")


def _likely(name: str, names: list[str]) -> str:
    last = name.rpartition(".")[2]
    nested = [n for n in names if n.rpartition(".")[2] == last]
    close = nested or difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    listed = ", ".join(names[:_MAX_LISTED_NAMES])
    return f"it has {listed or 'no numbers'}{' …' if len(names) > _MAX_LISTED_NAMES else ''}"


def _mask_rows(texts: list[str], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    if not shape:
        raise NotFed("a mask needs a shape with a dimension, such as [1, 12]")
    if len(texts) not in (1, shape[0]):
        raise NotFed(
            f"the mask has {len(texts)} entries and the shape {list(shape)} has {shape[0]} rows: "
            "write one for each row, or one for all"
        )
    return tuple(_mask_row(text, shape[-1]) for text in texts)


def _mask_row(text: str, length: int) -> tuple[int, int]:
    side, _, number = text.partition(" ")
    if side == "ones":
        return 0, length
    if side == "zeros":
        return 0, 0
    if int(number) >= length:
        raise NotFed(f"the mask pads {number} of {length} positions: leave at least one")
    return (int(number), length) if side == "left" else (0, length - int(number))


def check_names(
    names: Collection[str],
    signature: Signature,
    places: Mapping[str, str],
    what: str,
    series: Shapes,
) -> None:
    """Check the names of arguments against a forward.

    ``what`` names the source in a message; ``places`` are positions in matrix.yaml; ``series`` is that of
    :func:`choice.written`.
    """
    for name in names:
        if not signature.takes(name):
            place = places.get(name) or places.get("", "")
            free = [n for n in (p.name for p in signature.parameters) if n not in names]
            likely = difflib.get_close_matches(name, free, n=1, cutoff=0.5)
            listed = ", ".join(p.described() for p in signature.parameters) or "no argument"
            advice = f"did you mean {likely[0]}?" if likely else f"it takes {listed}"
            msg = f"{place}: {what} has {name}, which forward does not take: {advice}"
            if likely:
                msg += f" Rename {name} to {likely[0]}"
            raise NotFed(msg)
    missing = [p for p in signature.parameters if p.required and p.name not in names]
    if missing:
        listed = ", ".join(p.described() for p in missing)
        lines = ", ".join(f"{p.name}: {written(p, series=series)}" for p in missing)
        raise NotFed(
            f"{places.get('', '')}: forward needs {listed}, which {what} does not have: "
            f"write {{arguments: {{{lines}}}}}"
        )


def real_rows(mask: list[list[int]]) -> list[list[int]] | None:
    """Return, per row of a mask, the range of positions that are 1; None if none is 0.

    None, too, where a row has a gap or no 1: then all positions are compared.
    """
    ranges = []
    for row in mask:
        ones = [i for i, real in enumerate(row) if real]
        if not ones or ones[-1] - ones[0] + 1 != len(ones):
            return None
        ranges.append([ones[0], ones[-1] + 1])
    whole = all(stop - start == len(row) for (start, stop), row in zip(ranges, mask, strict=True))
    return None if whole else ranges
