"""Labels for losses of images: of pixels, and of those that match what a model finds with what is there.

They are constants, so that every release gets the same, and no two objects are alike.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from samebits_probe.model import choice
from samebits_probe.model.inputs import may_repeat_rows, tensors_of

Facts = dict[str, Any]
LABELS, MASKS, CLASSES = "labels", "mask_labels", "class_labels"
CONTRAST = "return_loss"
"""Argument that asks for the loss of texts and of what belongs to them."""
FUTURE = "future_values"
"""What a model of series is to predict: it computes a loss of them."""
FULL, EMPTY = (2, 1), (2, 0)
"""Objects of each image: different numbers, so that a mean over images is none over objects, and none at all."""
_BOXES = ((0.3, 0.35, 0.3, 0.4), (0.7, 0.6, 0.35, 0.25))
"""Center, width and height of each object, as parts of the image."""
_N_CLASSES = 2
"""Classes that are used: the fewest that a model has, and phrases that a text has (model.prompted)."""
_NO_CLASS = 255
"""The class of a pixel that no loss counts, unless a config names another."""
_SEED = 0
_DRAWS = ("rand", "rand_like", "randn", "randn_like", "randint", "randint_like")
"""Functions of torch by which losses draw."""
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


def of_pixels(logits: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """Return a class for each pixel of images, [rows, height, width]; one of each row is ignored."""
    shape = (pixels.shape[0], *pixels.shape[-2:])
    labels = (torch.arange(shape[0] * shape[1] * shape[2]).reshape(shape) // 3) % logits.shape[1]
    labels[:, 0, 0] = _NO_CLASS
    return labels


@contextlib.contextmanager
def order_free() -> Iterator[None]:
    """Let each draw of a loss follow from its shape alone for a while.

    Losses of masks are of drawn points, and those of boxes of drawn noise: without it a release that draws in another
    order, or a step in float64, would have others.
    """
    draws: dict[str, Any] = {
        name: functools.partial(_drawn, getattr(torch, name)) for name in _DRAWS
    }
    with mock.patch.multiple(torch, **draws):
        yield


def _drawn(draw: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    torch.default_generator.manual_seed(_SEED)
    drawn = draw(*args, **kwargs)
    if not drawn.is_floating_point() or "out" in kwargs:
        return drawn
    torch.default_generator.manual_seed(_SEED)
    return draw(*args, **kwargs | {"dtype": torch.float64}).to(drawn.dtype)
