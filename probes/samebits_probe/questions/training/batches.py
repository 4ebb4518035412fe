"""Rows with labels: what a training step of a model is fed.

Ids and labels are functions of names, as all inputs are. Rows have different numbers of labels, so
that a mean over rows and a mean over labels are different numbers.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

import torch

from samebits_probe.model import choice, forks, load, named, outputs, series_shapes, targets
from samebits_probe.model.choice import DoesNotApply
from samebits_probe.model.inputs import (
    each_row_twice,
    may_repeat_rows,
    n_rows,
    pad_id,
    seeded_ids,
    seeded_numbers,
    token_config,
)
from samebits_probe.model.prompted import PHRASES
from samebits_probe.questions.training import chance, forms, pictured

IGNORED = -100
"""The label that no loss counts."""
LENGTHS = (12, 9, 7, 4)
"""Tokens of the rows of a padded batch."""
PROMPT = 2
"""Tokens at the start of each row whose labels are ignored, as those of a prompt are."""
HALF = 6
"""Tokens of each of the two sequences that are packed into one row."""
_TARGET = 7
"""Labels of a row of an encoder-decoder."""
_SPELLING = 3
"""Labels of a row of a model with a CTC loss."""
ITEMS = "num_items_in_batch"
ROUTER = "output_router_logits"
IMAGES = "images"
"""Name of the batch of rows with an image in each, for a model that takes images among its tokens."""
DROPPED = "dropout"
"""Name of the main batch with dropout as a factor."""
ROUTED = "router"
"""Name of the batch that asks for the router's loss."""


class NoLoss(Exception):  # noqa: N818  a model without a loss is a result
    """The model computes no loss; the message says why."""


class Batch(NamedTuple):
    """One batch with its labels."""

    name: str
    kwargs: dict[str, Any]
    """Arguments of forward, labels among them."""
    problem: str = ""
    """The config's problem_type with which these labels are meant; '' for the config's own."""
    drops: bool = False
    """True if dropout is a factor."""

    @property
    def labels(self) -> torch.Tensor | None:
        """The labels; the start positions of a model that answers questions; None for what is in images."""
        labels = self.kwargs.get("labels", self.kwargs.get("start_positions"))
        return labels if isinstance(labels, torch.Tensor) else None

    @property
    def n_rows(self) -> int:
        """Number of rows that have labels; 0 for labels without rows."""
        if self.labels is None:
            return len(self.kwargs.get(targets.LABELS, self.kwargs.get(targets.CLASSES, ())))
        return int(self.labels.shape[0]) if self.labels.ndim else 0

    def rows(self, start: int, stop: int) -> dict[str, Any]:
        """Return the arguments of some of its rows."""
        return {
            name: value[start:stop] if isinstance(value, torch.Tensor) else value
            for name, value in self.kwargs.items()
        }

    def with_two_rows(self) -> Batch:
        """Return the batch; one of a single row with that row twice, where each of its tensors has a row."""
        if self.n_rows != 1 or not may_repeat_rows(self.kwargs):
            return self
        # a lesson is kept by the name of its batch
        return self._replace(name=f"{self.name} twice", kwargs=each_row_twice(self.kwargs))


@contextlib.contextmanager
def problem_of(model: Any, batch: Batch) -> Iterator[None]:
    """Give the config a batch's problem_type for a while."""
    if not batch.problem:
        yield
        return
    with mock.patch.object(model.config, "problem_type", batch.problem):
        yield


def takes_items(model: Any) -> bool:
    """Return True if the model takes num_items_in_batch, by the rule of transformers' Trainer."""
    parameters = inspect.signature(model.forward).parameters.values()
    named = any(parameter.name == ITEMS for parameter in parameters)
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return (named or open_ended) and getattr(model, "accepts_loss_kwargs", True) is not False


def n_items(batch: Batch, *, shifted: bool) -> int:
    """Return the number of labels that count; ``shifted`` leaves out the first of each row."""
    labels = batch.labels
    assert labels is not None
    return int(((labels[..., 1:] if shifted else labels) != IGNORED).sum())


def batches(model: Any, head: str, prompts: Mapping[str, dict[str, Any]]) -> list[Batch]:
    """Return the batches of a model, whose chance is not switched off yet, the main one first.

    ``prompts`` are the cell's inputs, of which a model that takes no token ids gets the first, and a model
    that takes images among its tokens the one with an image in each row.
    """
    made = _all(model, head, prompts)
    drops = bool(chance.dropouts(chance.chance_of(model)))
    return [*made, made[0]._replace(name=DROPPED, drops=True)] if drops else made


def _all(model: Any, head: str, prompts: Mapping[str, dict[str, Any]]) -> list[Batch]:
    takes_labels = any(
        forks.accepts(model, name)
        for name in ("labels", targets.MASKS, targets.FUTURE, forms.WHOLE)
    )
    asks = forks.accepts(model, "start_positions") and not takes_labels
    if not takes_labels and targets.is_contrastive(model):
        return [_of_pairs(prompts)]
    takes_tokens = getattr(model, "main_input_name", "input_ids") == choice.TOKENS
    if not takes_labels and not asks and not forms.hides_patches(model):
        if not takes_tokens and (made := _without_labels(model, prompts)):
            return made
        raise NoLoss(f"forward of {type(model).__name__} takes no labels")
    if not takes_tokens:
        return list(_of_prompt(model, head, prompts))
    try:
        made = list(_of_tokens(model, head, asks=asks))
        rows = pictured.padded(model, prompts) if head == "causal-lm" else None
        return made if rows is None else [*made, Batch(IMAGES, rows)]
    except DoesNotApply as reason:
        raise NoLoss(str(reason)) from reason


def _of_tokens(model: Any, head: str, *, asks: bool) -> Iterator[Batch]:
    if load.is_encoder_decoder(model) and head == "seq2seq-lm":
        inputs = _padded(model)
        labels = torch.tensor([_ids(model, f"labels {i}", _TARGET) for i in range(len(LENGTHS))])
        batch = inputs | {"labels": _with_ends_ignored(labels)}
        if getattr(model.config, "decoder_start_token_id", None) is None:
            batch[choice.DECODER] = labels.roll(1, 1)  # such a model cannot shift its labels itself
            batch[choice.DECODER][:, 0] = 0
            batch[choice.DECODER].clamp_(min=0)
        padded = Batch("padded", batch)
        yield padded
        yield from _of_switches(model, padded, shifted=False)
        return
    if head == "causal-lm":
        yield from _of_decoder(model)
        return
    if choice.takes_choices(type(model).__name__):
        yield Batch("choices", forms.of_choices(model, len(LENGTHS), LENGTHS[0]))
        return
    n_rows = 1 if getattr(model.config, "pad_token_id", None) is None else len(LENGTHS)
    inputs = _padded(model, n_rows)
    if asks:
        places = torch.tensor([1, 2, 3, 0][:n_rows])
        yield Batch("padded", inputs | {"start_positions": places, "end_positions": places})
        beyond = places + 0
        beyond[0] = max(LENGTHS)  # an answer that is not in the row is of no count
        yield Batch("beyond", inputs | {"start_positions": beyond, "end_positions": beyond})
        return
    of_rows = forms.beside(model, n_rows)
    padded = Batch("padded", inputs | {"labels": _labels_like(model, inputs)} | of_rows)
    yield padded
    yield from _of_switches(model, padded, shifted=False)
    if type(model).__name__.endswith("ForSequenceClassification"):
        yield from _of_problems(model, padded)


def _of_decoder(model: Any) -> Iterator[Batch]:
    inputs = _padded(model)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)
    labels[:, :PROMPT] = IGNORED
    padded = Batch("padded", inputs | {"labels": labels})
    yield padded
    rows = torch.tensor([_ids(model, f"plain {i}", LENGTHS[0]) for i in range(2)])
    yield Batch("plain", {"input_ids": rows, "labels": rows.clone()})
    if forks.accepts(model, "position_ids"):
        yield packed(model)
    yield from _of_switches(model, padded, shifted=True)


def _of_switches(model: Any, padded: Batch, *, shifted: bool) -> Iterator[Batch]:
    """Yield a batch again with the number of all labels, and with the router's loss."""
    if takes_items(model):
        yield Batch("items", padded.kwargs | {ITEMS: 2 * n_items(padded, shifted=shifted)})
    if forks.accepts(model, ROUTER):
        yield Batch(ROUTED, padded.kwargs | {ROUTER: True})


def _of_problems(model: Any, padded: Batch) -> Iterator[Batch]:
    """Yield the rows with labels of the other problems of a classifier: numbers, and several classes."""
    n_classes = int(getattr(model.config, "num_labels", 0))
    labels = padded.labels
    if n_classes < 2 or labels is None or labels.ndim != 1:
        return
    for problem in ("regression", "multi_label_classification"):
        several = torch.nn.functional.one_hot(labels, n_classes).to(model.dtype)
        several[:, 0] = 1.0
        yield Batch(problem, padded.kwargs | {"labels": several}, problem)


def packed(model: Any, first: str = "a") -> Batch:
    """Return two sequences in one row, with positions that restart and no mask.

    ``first`` names the first of them, so that the second can be seen with another one before it.
    """
    row = torch.tensor([[*_ids(model, f"packed {first}", HALF), *_ids(model, "packed b", HALF)]])
    labels = row.clone()
    labels[:, HALF] = IGNORED  # the first sequence does not predict the second
    positions = torch.arange(HALF).repeat(2)[None]
    arguments = {"input_ids": row, "position_ids": positions, "labels": labels}
    # releases that tell packed rows by their positions do so without a cache
    return Batch("packed", arguments | forks.uncached(model) | pictured.segments(model, row))


def unpacked(model: Any) -> Batch:
    """Return the two sequences of :func:`packed` as rows of their own."""
    rows = torch.tensor([_ids(model, f"packed {name}", HALF) for name in "ab"])
    labels = rows.clone()
    labels[1, 0] = IGNORED  # as in the packed row; no row has a label for its first token
    arguments = {"input_ids": rows, "labels": labels}
    return Batch("unpacked", arguments | forks.uncached(model) | pictured.segments(model, rows))


def _ids(model: Any, name: str, length: int) -> list[int]:
    return seeded_ids(f"training:{name}", length, token_config(model.config))


def _padded(model: Any, n_rows: int = len(LENGTHS)) -> dict[str, torch.Tensor]:
    """Return rows of different lengths, padded on the right, as training pads."""
    width, pad = max(LENGTHS), pad_id(token_config(model.config))
    rows = [_ids(model, str(i), length) for i, length in enumerate(LENGTHS[:n_rows])]
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


def _with_ends_ignored(labels: torch.Tensor) -> torch.Tensor:
    """Ignore one more label at the end of each next row."""
    for row in range(labels.shape[0]):
        labels[row, labels.shape[1] - row :] = IGNORED
    return labels


def _labels_like(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """Return seeded classes for the logits that the model computes for ``inputs``."""
    with torch.no_grad():
        output = model(**named.beside(model, inputs.get(choice.TOKENS)) | inputs)
    logits = outputs.logits_of(output)
    if logits is not None and (own := forms.of_output(model, output, logits)) is not None:
        return own
    if logits is not None and logits.ndim == 4 and choice.PIXELS in inputs:
        return targets.of_pixels(logits, inputs[choice.PIXELS])
    if logits is None or logits.ndim not in (2, 3):
        shape = "no logits" if logits is None else f"logits of shape {list(logits.shape)}"
        raise NoLoss(f"no rule makes labels for {shape}")
    n_classes, shape = int(logits.shape[-1]), logits.shape[:-1]
    labels = (torch.arange(shape.numel()).reshape(shape) * 7 + 1) % n_classes
    mask = inputs.get("attention_mask")
    if mask is not None and mask.shape == labels.shape:
        labels = labels.masked_fill(mask == 0, IGNORED)
    return labels


def _averages_rows(model: Any) -> bool:
    """Return True for a class with batch norms: in training they refuse one row of one pixel."""
    norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
    return any(isinstance(module, norms) for module in model.modules())


def _with_frames(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return features with a mask of ones for their frames: CTC losses of some classes count them in it."""
    features = inputs.get("input_features")
    takes_mask = choice.MASK in choice.signature_of(model.forward).names
    if features is None or features.ndim != 3 or choice.MASK in inputs or not takes_mask:
        return inputs
    return inputs | {choice.MASK: torch.ones(features.shape[:2], dtype=torch.long)}


def _of_series(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    if not (shape := series_shapes.shapes(model.config).get(targets.FUTURE)):
        raise NoLoss("the config does not tell how many values are to be predicted")
    return seeded_numbers("training", targets.FUTURE, (n_rows(inputs), *shape))


def _of_pairs(prompts: Mapping[str, dict[str, Any]]) -> Batch:
    """Return a text and an image or a sound in each of two rows, of which each text belongs to what is beside it."""
    for name, inputs in prompts.items():
        if choice.TOKENS in inputs and (pairs := targets.pairs(inputs)):
            return Batch(f"{name} in pairs", pairs | {targets.CONTRAST: True})
    raise NoLoss("no input of the cell is a text with an image or a sound")


def _without_labels(model: Any, prompts: Mapping[str, dict[str, Any]]) -> list[Batch]:
    """Return the first input of a model that computes a loss of it alone, as those that repair what they hide; else none."""
    for name, inputs in prompts.items():
        with torch.no_grad(), targets.order_free():
            loss = getattr(model(**inputs), "loss", None)
        return [] if loss is None else [Batch(name, dict(inputs))]
    return []


def _of_prompt(model: Any, head: str, prompts: Mapping[str, dict[str, Any]]) -> Iterator[Batch]:
    """Yield one of the cell's inputs with labels, for a model that takes images or sounds."""
    if not prompts:
        raise NoLoss("no input of the cell applies to the model")
    name = PHRASES if PHRASES in prompts else next(iter(prompts))
    inputs = dict(prompts[name])
    if choice.PIXELS in inputs and n_rows(inputs) == 1 and _averages_rows(model):
        inputs = targets.images(inputs)
    if head == "ctc":
        inputs = _with_frames(model, inputs)
        labels = torch.arange(1, 1 + _SPELLING).repeat(n_rows(inputs), 1)
        yield Batch(name, inputs | {"labels": labels})
    elif forms.hides_patches(model):
        yield Batch(name, inputs | forms.of_patches(model, inputs))
    elif forks.accepts(model, forms.WHOLE):
        yield Batch(name, inputs | forms.of_series(model, inputs))
    elif forks.accepts(model, targets.FUTURE):
        yield Batch(name, inputs | {targets.FUTURE: _of_series(model, inputs)})
    elif targets.labels(model, inputs, targets.FULL):
        inputs = targets.images(inputs)
        for case, numbers in (("objects", targets.FULL), ("no object", targets.EMPTY)):
            yield Batch(case, inputs | targets.labels(model, inputs, numbers))
    else:
        yield Batch(name, inputs | {"labels": _labels_like(model, inputs)})
