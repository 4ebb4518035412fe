"""Inputs of a model in one job, read from the bytes that were made once for all stacks.

The record is written by jobs/inputs.py; samebits/records/inputs.py is its schema. Only texts go
through this release's tokenizer. Their ids can differ between releases and are compared as the
signal inputs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from samebits_probe.model import choice, forks
from samebits_probe.model import inputs as model_inputs
from samebits_probe.model.choice import DoesNotApply, NotFed
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.load import Loaded
from samebits_probe.model.tensor import stored
from samebits_probe.process import files, progress
from samebits_wire.jobs import FedModel, PromptTask

Fact = dict[str, Any]


class Feed:
    """The inputs of one model, in the dtype and on the device of one job."""

    def __init__(self, model: FedModel, dtype: torch.dtype, device: str) -> None:
        inputs = model["inputs"]
        record = inputs["record"]
        self._record: Fact | None = files.read_sealed(Path(record)) if record else None
        self._reason = inputs["reason"]
        self._tensors = Path(inputs["root"]) / "tensors"
        self._dtype = dtype
        self._device = device

    def inputs(self, name: str, tokenizer: Any, model: Any = None) -> Inputs:
        """Return the inputs of a model for a prompt; without the model, what every release takes.

        Raises:
            DoesNotApply: the prompt does not apply to the model, or there are no inputs for it.

        """
        if self._record is None:
            raise NotFed(self._reason)
        return self._inputs(self._record["prompts"][name], model, tokenizer)

    def single(self, model: Any = None) -> Inputs:
        """Return a model's inputs where one forward is enough; see :meth:`inputs`."""
        if self._record is None:
            raise NotFed(self._reason)
        return self._inputs(self._record["single"], model, None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the prompts; none if samebits cannot make inputs of the model."""
        return (*(self._record or {"prompts": ()})["prompts"],)

    def all(
        self, tokenizer: Any, model: Any = None, names: Container[str] | None = None
    ) -> Iterator[tuple[str, Inputs]]:
        """Yield every prompt that applies, and its inputs; of all, or of these names."""
        for name in self.names:
            if names is not None and name not in names:
                continue
            with suppress(DoesNotApply):
                yield name, self.inputs(name, tokenizer, model)

    def run_before(
        self, loaded: Loaded, model: Any, task: PromptTask, dtype: torch.dtype | None = None
    ) -> Inputs:
        """Run what comes before a task's prompt as the cell's run did, and return its inputs.

        ``model`` is the loaded one or a copy of it; ``dtype`` is that of floats if it is another than the model's.
        Every prompt's forward comes before a decode.
        """
        chosen = None
        for name, as_chosen in self.all(loaded.tokenizer, loaded.model):
            inputs = as_chosen._replace(kwargs=model_inputs.in_dtype(as_chosen.kwargs, dtype))
            is_chosen = name == task["prompt"]
            chosen = inputs if is_chosen else chosen
            if is_chosen and task["what"] == "forward":
                break
            # the cell's run continues after a prompt that raises
            with suppress(Exception), progress.forward(inputs.kwargs, f"forward {name}"):
                model(**inputs.kwargs)
        assert chosen is not None, "the host names a prompt that the cell has run"
        return chosen

    def _inputs(self, record: Fact, model: Any, tokenizer: Any) -> Inputs:
        if record.get("reason"):
            if record["why"] == NotFed.why:
                raise NotFed(record["reason"], record.get("paste", ""))
            raise DoesNotApply(record["reason"])
        optional = record.get("optional", ())
        taken = tuple(name for name in optional if model and forks.accepts(model, name))
        refs = {n: r for n, r in record["tensors"].items() if n in taken or n not in optional}
        tensors = {name: stored(self._tensors, ref) for name, ref in refs.items()}
        real_rows, text = record.get("real_rows"), record.get("text")
        if record.get("rows"):
            rows = [_row_ids(row, tokenizer) for row in record["rows"]]
            padded = model_inputs.padded(rows, record["pad"], masked=record["masked"])
            if choice.DECODER in tensors:
                length = model_inputs.decoder_length(max(map(len, rows)))
                tensors[choice.DECODER] = tensors[choice.DECODER][:, :length].contiguous()
            tensors, real_rows = padded.kwargs | tensors, padded.real_rows
        renamed = _renamed(tensors, model)
        kwargs = {renamed.get(n, n): self._on_device(tensor) for n, tensor in tensors.items()}
        constants = record.get("constants")
        is_set = constants is not None
        kwargs |= constants or {}
        assert self._record is not None
        lacking = tuple(
            n for n in self._record["generate_needs"] if renamed.get(n, n) not in kwargs
        )
        return Inputs(kwargs, real_rows, text, is_set, taken, renamed, lacking)

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        return tensor.to(self._device)


def _renamed(names: Iterable[str], model: Any) -> dict[str, str]:
    """Return argument -> its name in this release, for an image that has another one here."""
    accepted = [n for n in choice.IMAGE_NAMES if model is not None and forks.accepts(model, n)]
    return {
        n: accepted[0] for n in names if accepted and n in choice.IMAGE_NAMES and n not in accepted
    }


def _row_ids(row: Fact, tokenizer: Any) -> list[int]:
    """Return the ids of a row; a text is encoded by this release's tokenizer."""
    if not row.get("text"):
        return [int(i) for i in row["ids"]]
    if tokenizer is None:
        raise NotFed("the prompt is a text, and this release loads no tokenizer for the model")
    ids = [int(i) for i in tokenizer(row["text"])["input_ids"]]
    if not ids:
        raise NotFed(
            f"the prompt is a text, and this release's {type(tokenizer).__name__} makes no token of it"
        )
    return model_inputs.stretched(ids, row["at_least"]) if row.get("at_least") else ids
