"""The part of a checkpoint tensor that several slices of it cover together.

A slice is a box: along every axis a set of indices, or all of them. Boxes that are equal along all
axes but one are merged, so the two halves of a tensor become the same box as their union. A box
with the extents of the tensor is the whole tensor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Places = tuple[tuple[int, int], ...] | None
"""Disjoint half-open ranges in ascending order; None: the whole axis, whatever its length."""

Box = tuple[Places, ...]
"""Places per axis. Axes after the last are whole, so ``()`` is the whole tensor."""

Coverage = frozenset[Box | str]
"""Boxes that cannot be merged; a part that could not be parsed stays a text."""

WHOLE: Coverage = frozenset({()})

_INDEX = re.compile(r"^\d+$")
_SLICE = re.compile(r"^(\d*):(\d*)(?::(\d+))?$")
_MAX_STEPS = 4096


def coverage(parts: Iterable[str]) -> Coverage:
    """Return what parts such as ``[0:64]``, ``[:, 3]`` or '' for all cover together."""
    parsed = {_parsed_box(part) for part in parts}
    texts = {part for part in parsed if isinstance(part, str)}
    boxes = _merged(_only_boxes(frozenset(parsed)))
    return frozenset(WHOLE if () in boxes else boxes | texts)


def same_part(a: Coverage, b: Coverage, shape: tuple[int, ...] | None) -> bool | None:
    """Return whether both cover the same; None if that is unknown without the ``shape``."""
    if a == b:
        return True
    a_boxes, b_boxes = _only_boxes(a), _only_boxes(b)
    if len(a_boxes) < len(a) or len(b_boxes) < len(b):
        return None
    if shape is not None:
        a_boxes, b_boxes = _with_whole_axes(a_boxes, shape), _with_whole_axes(b_boxes, shape)
    elif _mixes_whole_and_part(a_boxes | b_boxes):
        return None
    # Different sets of several boxes may still cover the same; a single box has only one form.
    return a_boxes == b_boxes or (False if len(a_boxes) == len(b_boxes) == 1 else None)


def _only_boxes(parts: Coverage) -> set[Box]:
    return {part for part in parts if not isinstance(part, str)}


def _parsed_box(part: str) -> Box | str:
    text = part.strip()
    if not text:
        return ()
    if not (text.startswith("[") and text.endswith("]")):
        return part
    axes = [_places(axis.strip()) for axis in text[1:-1].split(",")]
    parsed = [axis for axis in axes if not isinstance(axis, str)]
    return _trimmed(parsed) if len(parsed) == len(axes) else part


def _places(axis: str) -> Places | str:
    if _INDEX.match(axis):
        return ((int(axis), int(axis) + 1),)
    match = _SLICE.match(axis)
    if not match:
        return axis
    start, stop, step = match.groups()
    if not start and not stop and step in (None, "1"):
        return None
    if not stop:
        return axis  # its end depends on the shape
    return _step_places(int(start or 0), int(stop), int(step or 1)) or axis


def _step_places(start: int, stop: int, step: int) -> Places:
    if stop <= start or step < 1 or (step > 1 and (stop - start) // step > _MAX_STEPS):
        return None
    if step == 1:
        return ((start, stop),)
    return tuple((place, place + 1) for place in range(start, stop, step))


def _trimmed(axes: list[Places]) -> Box:
    while axes and axes[-1] is None:
        axes.pop()
    return tuple(axes)


def _merged(boxes: set[Box]) -> set[Box]:
    """Merge boxes that differ along only one axis, until no two do."""
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
    return {_with_axis(rest, axis, _union(places)) for rest, places in groups.items()}


def _with_axis(rest: Box, axis: int, places: Places) -> Box:
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


def _with_whole_axes(boxes: set[Box], shape: tuple[int, ...]) -> set[Box]:
    """Return the boxes with full extents replaced by whole axes, merged again."""
    result = set()
    for box in boxes:
        ends = zip(box, shape, strict=False)
        axes: list[Places] = [None if p == ((0, end),) else p for p, end in ends]
        result.add(_trimmed([*axes, *box[len(shape) :]]))
    return _merged(result)


def _mixes_whole_and_part(boxes: set[Box]) -> bool:
    """Return True if along some axis one box is whole and another is not."""
    longest = max(map(len, boxes), default=0)
    padded = [(*box, *[None] * (longest - len(box))) for box in boxes]
    return any(len({box[axis] is None for box in padded}) > 1 for axis in range(longest))
