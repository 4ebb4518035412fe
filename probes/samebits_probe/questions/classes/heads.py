"""What another head of a checkpoint computes: its outputs and its loss, with the same values in the head.

A head that the checkpoint lacks has random values, so its parameters are filled by a formula here. Rows are padded
on both sides, since a head may choose a token of each row.
"""

from __future__ import annotations

import inspect
from contextlib import nullcontext, suppress
from typing import Any

import torch

from samebits_probe.model import choice, forks, outputs, targets
from samebits_probe.model.choice import PIXELS
from samebits_probe.model.inputs import in_dtype, n_rows, seeded_numbers
from samebits_probe.model.series_shapes import shapes
from samebits_probe.model.targets import FUTURE
from samebits_probe.model.tensor import samples
from samebits_probe.process.failure import raised

Facts = dict[str, Any]
_LENGTH = 12
"""Tokens of a row."""
_PADS = 3
_IGNORED = -100
"""The label that a loss leaves out."""
_CHOOSES = "ForMultipleChoice"
"""Ends the names of heads whose rows are choices, of which the batch has one dimension more."""
_HALVES = ("encoder", "decoder")
_SAMPLES = 16
"""Values of an output that are kept, beside its norm."""


def numbers(model: Any, fresh: list[str], kwargs: Facts | None) -> Facts:
    """Return samples of the outputs, by name and shape; of the base model alone as well, which the head rests on."""
    base = model.base_model
    if kwargs is None or (base is model and not (fresh and _has_halves(model))):
        return {}
    fill(model, fresh)
    try:
        inputs = _that_answers(model, kwargs)
    except Exception as error:  # noqa: BLE001  an exception is one of the possible results
        return {"forward_raised": raised(error)}
    for dtype in (torch.float64, torch.float32):  # some code takes no float64
        with suppress(Exception):
            return {
                "dtype": str(dtype).removeprefix("torch."),
                **_of_both(model, base, inputs, dtype),
            }
    return {}


def _of_both(model: Any, base: Any, inputs: Facts, dtype: torch.dtype) -> Facts:
    model.to(dtype)
    inputs = in_dtype(inputs, dtype)
    for_base = {name: value for name, value in inputs.items() if forks.accepts(base, name)}
    if _chooses(model):
        for_base = {name: value[0] for name, value in for_base.items()}
    with torch.no_grad():
        first, again = (_samples(_forward(model, inputs)) for _ in range(2))
        if first != again:  # a forward that draws numbers, such as which patches it hides
            return {}
        of_base = _of_halves(model, inputs) if base is model else _of_base(base, for_base)
        return {"base_numbers": of_base, "numbers": first}


def _of_base(base: Any, inputs: Facts) -> dict[str, list[float]]:
    """Return what the base model computes; T5's makes no ids for its decoder, as its heads do."""
    with suppress(Exception):
        return _samples(base(**inputs))
    return _samples(base(**inputs, decoder_input_ids=inputs["input_ids"]))


def _has_halves(model: Any) -> bool:
    """Return True for a head that has encoder and decoder without a base model around them, as T5's for spans."""
    return all(isinstance(getattr(model, name, None), torch.nn.Module) for name in _HALVES)


def _of_halves(model: Any, inputs: Facts) -> dict[str, list[float]]:
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    encoded = model.encoder(input_ids=ids, attention_mask=mask)
    decoded = model.decoder(
        input_ids=ids, encoder_hidden_states=encoded[0], encoder_attention_mask=mask
    )
    halves = zip(_HALVES, (encoded, decoded), strict=True)
    return {f"{half} {n}": v for half, result in halves for n, v in _samples(result).items()}


def fill(model: Any, fresh: list[str]) -> None:
    """Fill the parameters that no file has, by their order and nothing that a release could draw."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for i, name in enumerate(fresh):
            if (parameter := parameters.get(name)) is not None and parameter.is_floating_point():
                steps = torch.arange(parameter.numel(), dtype=torch.float64)
                values = torch.sin(steps * 0.7 + i).reshape(parameter.shape) / 4
                parameter.copy_(values.to(parameter.dtype))


def _that_answers(model: Any, kwargs: Facts) -> Facts:
    """Return the first arguments that forward takes, with labels; raises what it raises for the last ones."""
    if _chooses(model):
        choices = {name: value[None] for name, value in rows(kwargs, model.config).items()}
        return _with_labels(model, choices)
    without_decoder = {n: v for n, v in kwargs.items() if not n.startswith("decoder_")}
    # heads of some encoder-decoders make the decoder's ids, others do not
    with suppress(Exception):
        return _with_labels(model, rows(without_decoder, model.config))
    return _with_labels(model, kwargs)


def _chooses(model: Any) -> bool:
    return type(model).__name__.endswith(_CHOOSES)


def _with_labels(model: Any, way: Facts) -> Facts:
    with torch.no_grad():
        named = outputs.tensors(_forward(model, way))
        names = inspect.signature(model.forward).parameters
        labelled = way | labels(names, way, named.get("logits"))
        if labelled.keys() == way.keys():
            labelled = _with_targets(model, way, named)
        try:
            _forward(model, labelled)
        except ImportError:  # a loss that matches objects needs scipy
            return way
    return labelled


def _forward(model: Any, way: Facts) -> Any:
    """Return what a forward gives; a loss that matches objects draws what follows from shapes alone."""
    has_objects = targets.MASKS in way or isinstance(way.get(targets.LABELS), list)
    with targets.order_free() if has_objects else nullcontext():
        return model(**way)


def _with_targets(model: Any, way: Facts, named: dict[str, torch.Tensor]) -> Facts:
    """Return arguments with what losses of images and of series take; as they are where there is none."""
    names = choice.signature_of(model.forward).names
    logits, pixels = named.get("logits"), way.get(PIXELS)
    if FUTURE in names and FUTURE not in way and (shape := shapes(model.config).get(FUTURE)):
        return way | {FUTURE: seeded_numbers("classes", FUTURE, (n_rows(way), *shape))}
    if targets.labels(model, way, targets.FULL):
        images = targets.images(way)
        return images | targets.labels(model, images, targets.FULL)
    if "labels" in names and logits is not None and logits.ndim == 4 and pixels is not None:
        return way | {"labels": targets.of_pixels(logits, pixels)}
    return way


def rows(kwargs: Facts, config: Any) -> Facts:
    """Return a row of text as three: whole, padded on the right, padded on the left; others as they are."""
    ids, pad = kwargs.get("input_ids"), getattr(config, "pad_token_id", None)
    if kwargs.keys() - {"input_ids", "attention_mask"} or ids is None or not isinstance(pad, int):
        return kwargs
    real = ids[0, :_LENGTH].clone()
    eos = getattr(config, "eos_token_id", None)
    real[(real == pad) | (real == eos)] = next(i for i in range(3) if i not in (pad, eos))
    if isinstance(eos, int) and eos != pad:
        real[-1] = eos  # heads of BART and T5 take the last one of each row
    pads, ones = torch.full((_PADS,), pad), torch.ones(len(real) - _PADS, dtype=torch.long)
    short, zeros = real[_PADS:], torch.zeros(_PADS, dtype=torch.long)
    return {
        "input_ids": torch.stack([real, torch.cat([short, pads]), torch.cat([pads, short])]),
        "attention_mask": torch.stack(
            [torch.ones_like(real), torch.cat([ones, zeros]), torch.cat([zeros, ones])]
        ),
    }


def labels(names: Any, way: Facts, logits: torch.Tensor | None) -> Facts:
    """Return targets of the form that the outputs have: of each row, of each token, or a span."""
    if "start_positions" in names and "input_ids" in way:
        start = torch.ones(len(way["input_ids"]), dtype=torch.long)
        return {"start_positions": start, "end_positions": start + 1}
    if "labels" not in names or logits is None:
        return {}
    n_classes, ids = logits.shape[-1], way.get("input_ids")
    if logits.ndim == 2:
        return {"labels": torch.arange(len(logits)) % n_classes}
    if ids is None or logits.shape[:-1] != ids.shape:
        return {}
    mask = way.get("attention_mask", torch.ones_like(ids))
    return {"labels": torch.where(mask.bool(), ids % n_classes, _IGNORED)}


def _samples(result: Any) -> dict[str, list[float]]:
    return {
        f"{name}{tuple(tensor.shape)}": samples(tensor, _SAMPLES)
        for name, tensor in outputs.tensors(result).items()
        if tensor.is_floating_point()
    }
