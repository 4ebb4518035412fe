"""Which part of a checkpoint tensor do some slices of it cover together?

A slice is a box: along every axis a set of places, or all of them. Boxes that are equal
along all axes but one are merged, so the two halves of a tensor become the same box as
their union; a box whose extents are those of the tensor is the whole of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Places = tuple[tuple[int, int], ...] | None
"""Disjoint half-open ranges in ascending order; None: all of the axis, however long."""

Box = tuple[Places, ...]
"""Places per axis; axes after the last are whole, so ``()`` is the whole tensor."""

Coverage = frozenset[Box | str]
"""Boxes that cannot be merged; a part that is not understood stays as its text."""

WHOLE: Coverage = frozenset({()})

_INDEX = re.compile(r"^\d+$")
_SLICE = re.compile(r"^(\d*):(\d*)(?::(\d+))?$")
_MOST_STEPS = 4096


def coverage(parts: Iterable[str]) -> Coverage:
    """Return what the parts, such as ``[0:64]`` or ``[:, 3]`` or '' for all, cover together."""
    read = {_box(part) for part in parts}
    texts = {part for part in read if isinstance(part, str)}
    boxes = _merged(_boxes(frozenset(read)))
    return frozenset(WHOLE if () in boxes else boxes | texts)


def same_part(a: Coverage, b: Coverage, shape: tuple[int, ...] | None) -> bool | None:
    """Return whether both cover the same; None if it cannot be told without the ``shape``."""
    if a == b:
        return True
    mine, theirs = _boxes(a), _boxes(b)
    if len(mine) < len(a) or len(theirs) < len(b):
        return None
    if shape is not None:
        mine, theirs = _fitted(mine, shape), _fitted(theirs, shape)
    elif _mixes(mine | theirs):
        return None
    # Unlike sets of several boxes may still cover the same; a single box has one form only.
    return mine == theirs or (False if len(mine) == len(theirs) == 1 else None)


def _boxes(parts: Coverage) -> set[Box]:
    return {part for part in parts if not isinstance(part, str)}


def _box(part: str) -> Box | str:
    text = part.strip()
    if not text:
        return ()
    if not (text.startswith("[") and text.endswith("]")):
        return part
    axes = [_places(axis.strip()) for axis in text[1:-1].split(",")]
    understood = [axis for axis in axes if not isinstance(axis, str)]
    return _trimmed(understood) if len(understood) == len(axes) else part


def _places(axis: str) -> Places | str:
    if _INDEX.match(axis):
        return ((int(axis), int(axis) + 1),)
    found = _SLICE.match(axis)
    if not found:
        return axis
    start, stop, step = found.groups()
    if not start and not stop and step in (None, "1"):
        return None
    if not stop:
        return axis  # how far it reaches depends on the shape
    return _stepped(int(start or 0), int(stop), int(step or 1)) or axis


def _stepped(start: int, stop: int, step: int) -> Places:
    if stop <= start or step < 1 or (step > 1 and (stop - start) // step > _MOST_STEPS):
        return None
    if step == 1:
        return ((start, stop),)
    return tuple((place, place + 1) for place in range(start, stop, step))


def _trimmed(axes: list[Places]) -> Box:
    while axes and axes[-1] is None:
        axes.pop()
    return tuple(axes)


def _merged(boxes: set[Box]) -> set[Box]:
    """Merge boxes that differ along one axis alone, until no two do."""
    before: set[Box] = set()
    while before != boxes:
        before = boxes
        for axis in range(max(map(len, boxes), default=0)):
            boxes = _merged_along(boxes, axis)
    return boxes


def _merged_along(boxes: set[Box], axis: int) -> set[Box]:
    groups: dict[Box, list[Places]] = {}
    for box in boxes:
        padded = [*box, *[None] * (axis + 1 - len(box))]
        places = padded[axis]
        padded[axis] = None
        groups.setdefault(_trimmed(padded), []).append(places)
    return {_placed(rest, axis, _union(places)) for rest, places in groups.items()}


def _placed(rest: Box, axis: int, places: Places) -> Box:
    axes = [*rest, *[None] * (axis + 1 - len(rest))]
    axes[axis] = places
    return _trimmed(axes)


def _union(ranges: list[Places]) -> Places:
    if any(places is None for places in ranges):
        return None
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(place for places in ranges for place in places or ()):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return tuple(joined)


def _fitted(boxes: set[Box], shape: tuple[int, ...]) -> set[Box]:
    """Return the boxes with whole axes recognised as such, merged again."""
    fitted = set()
    for box in boxes:
        ends = zip(box, shape, strict=False)
        axes: list[Places] = [None if p == ((0, end),) else p for p, end in ends]
        fitted.add(_trimmed([*axes, *box[len(shape) :]]))
    return _merged(fitted)


def _mixes(boxes: set[Box]) -> bool:
    """Return True if along some axis one box is whole and another is not."""
    longest = max(map(len, boxes), default=0)
    padded = [(*box, *[None] * (longest - len(box))) for box in boxes]
    return any(len({box[axis] is None for box in padded}) > 1 for axis in range(longest))
