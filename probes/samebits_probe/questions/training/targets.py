"""Labels for losses that match what a model finds in an image with what is there: boxes, classes and masks.

They are constants, so that every release gets the same, and no two objects are alike.
"""

from __future__ import annotations

import re
from typing import Any

import torch

from samebits_probe.model import choice
from samebits_probe.model.inputs import may_repeat_rows, tensors_of

Facts = dict[str, Any]
LABELS, MASKS, CLASSES = "labels", "mask_labels", "class_labels"
CONTRAST = "return_loss"
"""Argument that asks for the loss of texts and of what belongs to them."""
FULL, EMPTY = (2, 1), (2, 0)
"""Objects of each image: different numbers, so that a mean over images is none over objects, and none at all."""
_BOXES = ((0.3, 0.35, 0.3, 0.4), (0.7, 0.6, 0.35, 0.25))
"""Center, width and height of each object, as parts of the image."""
_N_CLASSES = 2
"""Classes that are used: the fewest that a model has, and phrases that a text has (model.prompted)."""
_DICTS = re.compile(r"\bdict\b", re.IGNORECASE)


def images(inputs: Facts) -> Facts:
    """Return the first row of a prompt, and the same with its image turned; as it is where rows are no batch."""
    if not may_repeat_rows(inputs):
        return inputs
    first = {name: tensor[:1] for name, tensor in tensors_of(inputs).items()}
    second = first | {choice.PIXELS: first[choice.PIXELS].flip(-1, -2)}
    return inputs | {name: torch.cat([first[name], second[name]]) for name in first}


def is_contrastive(model: Any) -> bool:
    """Return True for a class that compares each text of a batch with each image or sound."""
    names = choice.signature_of(model.forward).names
    return CONTRAST in names and choice.TOKENS in names


def pairs(inputs: Facts) -> Facts:
    """Return the first row of a prompt, and the same with all of it turned; {} where rows are no batch, or all is text.

    The turned row has other tokens in other places, and so has its image or its sound.
    """
    tensors = tensors_of(inputs)
    beside = [n for n, t in tensors.items() if t.is_floating_point() and t.ndim > 1]
    if not beside or not may_repeat_rows(inputs):
        return {}
    first = {name: tensor[:1] for name, tensor in tensors.items()}
    turned = [choice.TOKENS, *beside]
    return inputs | {
        name: torch.cat([row, row.flip(-1) if name in turned else row])
        for name, row in first.items()
    }


def labels(model: Any, inputs: Facts, numbers: tuple[int, ...]) -> Facts:
    """Return labels with so many objects in each image; nothing for a forward that takes neither boxes nor masks."""
    signature, pixels = choice.signature_of(model.forward), inputs.get(choice.PIXELS)
    if pixels is None or pixels.ndim != 4:
        return {}
    numbers = numbers[: len(pixels)]
    masks = [_masks(number, pixels) for number in numbers]
    n_classes = min(int(getattr(model.config, "num_labels", 1)), _N_CLASSES)
    classes = [(torch.arange(number) + 1) % n_classes for number in numbers]
    if {MASKS, CLASSES} <= signature.names:
        return {MASKS: masks, CLASSES: classes}
    if not any(p.name == LABELS and _DICTS.search(p.annotation) for p in signature.parameters):
        return {}
    boxes = [torch.tensor(_BOXES, dtype=pixels.dtype)[:number] for number in numbers]
    # masks are of use to the losses of segmentation alone
    return {
        LABELS: [
            {CLASSES: of_row, "boxes": boxes[row], "masks": masks[row]}
            for row, of_row in enumerate(classes)
        ]
    }


def _masks(number: int, pixels: torch.Tensor) -> torch.Tensor:
    """Return the mask of each box, [objects, height, width]."""
    height, width = pixels.shape[-2:]
    masks = torch.zeros(number, height, width, dtype=pixels.dtype)
    for mask, (x, y, w, h) in zip(masks, _BOXES, strict=False):
        top, bottom = int((y - h / 2) * height), int((y + h / 2) * height) + 1
        left, right = int((x - w / 2) * width), int((x + w / 2) * width) + 1
        mask[top:bottom, left:right] = 1
    return masks
