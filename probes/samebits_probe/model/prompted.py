"""Prompts of models that are told beside an image what to find in it: points, boxes, masks, phrases, a task.

Which of them a model gets follows from the names that its forward takes, and their sizes from its config.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from samebits_probe.model.choice import MASK, PIXELS, TOKENS, Signature
from samebits_probe.model.inputs import (
    image_size,
    seeded_ids,
    seeded_numbers,
    token_config,
    values,
    vocabulary,
)

Tensors = dict[str, torch.Tensor]

PHRASES = "phrases"
"""The prompt of a model that finds what phrases of one text name; there are two of them."""
_POINTS, _POINT_LABELS, _BOXES, _MASKS = (
    "input_points",
    "input_labels",
    "input_boxes",
    "input_masks",
)
_BOX_LABELS = "input_boxes_labels"
_ONE_MASK, _FINE = "multimask_output", "hq_token_only"
_TASK, _CLASSES, _EXAMPLE = "task_inputs", "classes_input_ids", "conditional_pixel_values"
_OBJECTS = (((0.25, 0.25), (0.6, 0.3)), ((0.7, 0.75), (0.1, 0.9)))
"""Two objects: of each a point inside and one outside, as parts of the image."""
_CORNERS = ((0.1, 0.15, 0.5, 0.45), (0.55, 0.6, 0.9, 0.95))
"""Corners of the two objects' boxes."""
_INSIDE, _OUTSIDE, _PAD = 1, 0, -10
_LENGTH = 4
"""Token ids of a phrase, of a class and of a query."""


class Prompted(NamedTuple):
    """What one prompt passes to forward."""

    tensors: Tensors
    constants: dict[str, Any] = {}  # noqa: RUF012  it is never changed


def prompts(model_class: type, config: Any, signature: Signature) -> Iterator[tuple[str, Prompted]]:
    """Yield the prompts of a class by their names; none for a class that takes an image alone, or none."""
    names = signature.names
    if PIXELS not in names:
        return
    if {_POINTS, _POINT_LABELS, _BOXES, _MASKS} <= names:
        yield from _of_places(config, names)
    elif {_BOXES, _BOX_LABELS, TOKENS} <= names:
        yield from _of_text_and_boxes(config)
    elif _CLASSES in names:
        for name, rows in (("classes", 1), ("classes-batch", 2)):
            yield name, Prompted(_pixels(name, config, rows) | _of_classes(name, config, rows))
    elif _TASK in names:
        length = int(getattr(config, "task_seq_len", 0))
        ids = torch.arange(1, length + 1)[None] % 49  # small, as what follows is linear in them
        yield "task", Prompted(_pixels("task", config) | {_TASK: ids})
    elif _EXAMPLE in names:
        example = values("example", PIXELS, config)
        yield "example", Prompted(_pixels("example of", config) | {_EXAMPLE: example})
    elif hasattr(model_class, "image_guided_detection"):
        yield "queries", Prompted(_pixels("queries", config) | _queries(config))
    else:
        yield from _of_phrases(model_class, config)


def _pixels(name: str, config: Any, rows: int = 1) -> Tensors:
    return {PIXELS: values(name, PIXELS, config, rows)}


def _of_places(config: Any, names: frozenset[str]) -> Iterator[tuple[str, Prompted]]:
    """Yield prompts of points, boxes and masks, in pixels of the image."""
    size = image_size(config)
    scale = torch.tensor([size[1], size[0]], dtype=torch.float32)
    points = {
        _POINTS: torch.tensor([_OBJECTS]) * scale,
        _POINT_LABELS: torch.tensor([[[_INSIDE, _OUTSIDE]] * len(_OBJECTS)]),
    }
    boxes = {_BOXES: torch.tensor([_CORNERS]) * scale.repeat(2)}
    made: dict[str, Prompted] = {
        "points": Prompted(points),
        "boxes": Prompted(boxes),
        "points-and-boxes": Prompted(points | boxes),
        "mask": Prompted(points | {_MASKS: _mask(config)}),
        "points-batch": Prompted(_two_rows(points)),
    }
    if _ONE_MASK in names:
        made["one-mask"] = Prompted(points, {_ONE_MASK: False})
    if {_FINE, _ONE_MASK} <= names:
        made["fine-mask"] = Prompted(points, {_FINE: True, _ONE_MASK: False})
    for name, prompt in made.items():
        rows = len(next(iter(prompt.tensors.values())))
        yield name, prompt._replace(tensors=_pixels(name, config, rows) | prompt.tensors)


def _two_rows(points: Tensors) -> Tensors:
    """Return the points of two images, the second of which has one less: its place is padded."""
    labels = torch.cat([points[_POINT_LABELS]] * 2)
    labels[1, :, 1] = _PAD
    return {_POINTS: torch.cat([points[_POINTS], points[_POINTS].flip(1)]), _POINT_LABELS: labels}


def _mask(config: Any) -> torch.Tensor:
    """Return seeded logits of a mask, four times as fine as the embedding of the image."""
    patch = int(getattr(getattr(config, "prompt_encoder_config", None), "patch_size", 16))
    height, width = (4 * (side // patch) for side in image_size(config))
    return seeded_numbers("mask", _MASKS, (1, 1, height, width)) * 8


def _of_text_and_boxes(config: Any) -> Iterator[tuple[str, Prompted]]:
    ids = torch.tensor([seeded_ids("concept", _LENGTH, token_config(config))])
    text = _pixels("concept", config) | {TOKENS: ids, MASK: torch.ones_like(ids)}
    centers = [[(a + c) / 2, (b + d) / 2, c - a, d - b] for a, b, c, d in _CORNERS]
    labels = torch.tensor([[_INSIDE, _OUTSIDE]])
    yield "concept", Prompted(text)
    yield "boxes", Prompted(text | {_BOXES: torch.tensor([centers]), _BOX_LABELS: labels})


def _of_classes(name: str, config: Any, rows: int) -> Tensors:
    """Return a task for each image and its classes, of which the first image has two and the second three."""
    numbers = [2, 3][:rows]
    tokens = token_config(config)
    classes = [seeded_ids(f"{name} {i}", _LENGTH, tokens) for i in range(sum(numbers))]
    tasks = [seeded_ids(f"{name} task {i}", 2 * _LENGTH, tokens) for i in range(rows)]
    made = {_CLASSES: torch.tensor(classes), "tasks_input_ids": torch.tensor(tasks)}
    masks = {n.replace("input_ids", MASK): torch.ones_like(ids) for n, ids in made.items()}
    return made | masks | {"classes_structure": torch.tensor(numbers)}


def _queries(config: Any) -> Tensors:
    """Return three texts for one image, the last of which is padding."""
    tokens = token_config(config)
    ids = torch.tensor([seeded_ids(f"query {i}", 2 * _LENGTH, tokens) for i in range(3)])
    ids[-1] = 0
    end = getattr(tokens, "eos_token_id", None)
    if isinstance(end, int) and 0 <= end < vocabulary(tokens):
        ids[:-1, -1] = end  # a text is pooled there
    mask = torch.ones_like(ids)
    mask[-1, 2:] = 0  # a row that is masked as a whole has no meaning in attention
    return {TOKENS: ids, MASK: mask}


def _of_phrases(model_class: type, config: Any) -> Iterator[tuple[str, Prompted]]:
    """Yield a text of two phrases, whose ends are ids in the code of the class: start, end, ``.`` and ``?``.

    Each of them ends a phrase. A small vocabulary has the first two alone.
    """
    listed = getattr(sys.modules[model_class.__module__], "SPECIAL_TOKENS", None)
    tokens = token_config(config)
    special = [n for n in listed if n < vocabulary(tokens)] if isinstance(listed, list) else []
    if len(special) < 2:
        return
    start, end, stop = [*special, special[1]][:3]
    first, second = (seeded_ids(f"phrase {i}", _LENGTH, tokens, special) for i in range(2))
    # closed on both sides, as relations feed the text turned round, too
    ids = torch.tensor([[start, stop, *first, stop, *second[1:], stop, end]])
    yield PHRASES, Prompted(_pixels(PHRASES, config) | {TOKENS: ids, MASK: torch.ones_like(ids)})
