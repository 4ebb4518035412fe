"""What a processor makes of a model's outputs: boxes, masks, depths and texts, from a seeded table.

The outputs stand in for those of a model of any kind: each method takes from them what it reads. All
values are multiples of 1/64, so a float32 has them exactly.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from samebits_probe.questions.processors.samples import uniform

Leaves = Iterator[tuple[str, Any]]

_N_IMAGES, _N_QUERIES, _N_CLASSES, _SIDE = 2, 12, 5, 16
SIZES = ((48, 64), (30, 20))
"""Height and width of the images that the outputs are of."""
_SEED = 838
_STEPS = 64
_N_IDS = 24
_STRIDE = 7919
"""A prime, so that the ids of a text are spread over a vocabulary of any size."""
_ATTRIBUTE = re.compile(r"\boutputs\.(\w+)|\boutputs\[[\"'](\w+)[\"']\]")


class Outputs(SimpleNamespace):
    """Outputs of a model, by attribute and by key."""

    def __getitem__(self, name: str) -> Any:
        """Return an output by its name."""
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an output by its name, or a default."""
        return getattr(self, name, default)


def seeded(shape: tuple[int, ...], seed: int, low: float = -8.0, high: float = 8.0) -> torch.Tensor:
    """Return multiples of 1/64 in low..high, in torch's default dtype."""
    values = low + uniform(_SEED + seed, int(np.prod(shape))) * (high - low)
    exact = np.round(values * _STEPS) / _STEPS
    return torch.tensor(exact.reshape(shape).tolist())


def _outputs(method: Any) -> Outputs:
    """Return outputs with logits of queries, or of pixels where the method reads no other ones."""
    of_queries = (_N_IMAGES, _N_QUERIES)
    of_pixels = (_N_IMAGES, _N_CLASSES, _SIDE, _SIDE)
    is_of_pixels = _reads(method) == {"logits"} and "semantic" in method.__name__
    return Outputs(
        logits=seeded(of_pixels, 1) if is_of_pixels else seeded((*of_queries, _N_CLASSES), 1),
        pred_boxes=seeded((*of_queries, 4), 2, 0.25, 0.5),
        pred_masks=seeded((*of_queries, _SIDE, _SIDE), 3),
        class_queries_logits=seeded((*of_queries, _N_CLASSES), 1),
        masks_queries_logits=seeded((*of_queries, _SIDE, _SIDE), 3),
        predicted_depth=seeded((_N_IMAGES, _SIDE, _SIDE), 4, 0.5, 8.0),
    )


def _reads(method: Any) -> set[str]:
    """Return the names of the outputs that a method's source reads."""
    try:
        source = inspect.getsource(method)
    except (OSError, TypeError):
        return set()
    return {first or second for first, second in _ATTRIBUTE.findall(source)}


def _of_outputs(method: Any) -> Any:
    sizes = [tuple(size) for size in SIZES]
    options = {"threshold": 0.25, "target_sizes": sizes, "source_sizes": sizes}
    return method(_outputs(method), **_accepted(method, options))


def _of_masks(method: Any) -> Any:
    masks = [seeded((1, 3, _SIDE, _SIDE), 5 + i) for i in range(_N_IMAGES)]
    sizes = [list(size) for size in SIZES]
    options = {"original_sizes": sizes, "reshaped_input_sizes": sizes}
    return method(masks, **_accepted(method, options))


def _of_ids(processor: Any) -> Callable[[Any], Any]:
    size = len(processor.tokenizer)
    rows = [[(row * _N_IDS + i // 2) * _STRIDE % size for i in range(_N_IDS)] for row in range(2)]

    def call(method: Any) -> Any:
        return method(torch.tensor(rows), **_accepted_by_tokenizer(method))

    return call


def _accepted(method: Any, options: dict[str, Any]) -> dict[str, Any]:
    names = inspect.signature(method).parameters
    return {name: value for name, value in options.items() if name in names}


def _accepted_by_tokenizer(method: Any) -> dict[str, Any]:
    """Return skip_special_tokens for a method that names it, or hands all on to the tokenizer."""
    parameters = inspect.signature(method).parameters.values()
    takes = any(p.name == "skip_special_tokens" or p.kind is p.VAR_KEYWORD for p in parameters)
    return {"skip_special_tokens": True} if takes else {}


METHODS: Mapping[str, Callable[[Any], Any]] = {
    "post_process_object_detection": _of_outputs,
    "post_process_semantic_segmentation": _of_outputs,
    "post_process_instance_segmentation": _of_outputs,
    "post_process_panoptic_segmentation": _of_outputs,
    "post_process_depth_estimation": _of_outputs,
    "post_process_masks": _of_masks,
}
"""Method -> how it is called."""
OF_TEXTS = ("batch_decode", "post_process_image_text_to_text")


def calls(processor: Any) -> dict[str, Callable[[Any], dict[str, Any]]]:
    """Return method -> call of it with a processor, for the methods that the processor has."""
    methods = {name: call for name, call in METHODS.items() if hasattr(processor, name)}
    if getattr(processor, "tokenizer", None) is not None:
        of_ids = _of_ids(processor)
        methods |= {name: of_ids for name in OF_TEXTS if hasattr(processor, name)}
    return {name: _call(name, call) for name, call in methods.items()}


def _call(name: str, call: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    def named(processor: Any) -> dict[str, Any]:
        return dict(leaves(call(getattr(processor, name))))

    return named


def leaves(value: Any, name: str = "") -> Leaves:
    """Yield the arrays and texts of a result, by their places: ``0.boxes``, ``1.segments_info.id``.

    Dicts in a list with the same keys are joined to one list for each key.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)) and not _is_plain(value):
        if _are_rows(value):
            for key in value[0]:
                yield from leaves([row[key] for row in value], f"{name}.{key}")
        else:
            for number, item in enumerate(value):
                yield from leaves(item, f"{name}.{number}" if name else str(number))
    else:
        yield name or "result", "None" if value is None else value


def _is_plain(value: list[Any] | tuple[Any, ...]) -> bool:
    """Return True for a list of texts or of numbers, which is one leaf."""
    return all(isinstance(item, (bool, int, float, str)) for item in value)


def _are_rows(value: list[Any] | tuple[Any, ...]) -> bool:
    rows = [item for item in value if isinstance(item, Mapping)]
    if len(rows) != len(value):
        return False
    plain = (bool, int, float, str)
    return all(
        row.keys() == rows[0].keys() and all(isinstance(v, plain) for v in row.values())
        for row in rows
    )
