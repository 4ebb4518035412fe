"""One model as its cell loads it, with the prompt of a graft and the outputs to compare."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import torch

from samebits_probe.model import layers, load, outputs
from samebits_probe.model.decode import GREEDY_LOGITS, forcing
from samebits_probe.model.feed import Feed
from samebits_probe.model.inputs import Inputs, token_width
from samebits_probe.model.tensor import Keeper, tensor_hash
from samebits_probe.process import progress
from samebits_wire.jobs import GraftJob, GraftTask

Fact = dict[str, Any]
Task = TypeVar("Task", bound="GraftTask")

_WATCHED_COST = 20
"""Cost of a forward with all places watched, in plain forwards of a small model."""


class Output(NamedTuple):
    """One tensor whose bytes must be the same."""

    name: str
    whole: str
    rows: str
    """Hash of the rows without padding."""
    tensor: torch.Tensor
    """The rows without padding."""


class Bench(Generic[Task]):
    """One model, loaded as the cell loads it, and the prompt of the graft."""

    def __init__(self, job: GraftJob, question: Task) -> None:
        variant, model, store = job["cell"]["variant"], job["model"], job["store"]
        self.job = job
        self.question = question
        self.source = load.Source.of(model, variant)
        self.keeper = Keeper(store["root"], store["limit"], [])

    def load(self) -> None:
        """Load the model and run the prompts before this one, as the cell's run did."""
        progress.begin("load")
        self.loaded = load.load(self.source)
        progress.begin("graft")
        self.inputs = self.before(self.loaded.model)

    def before(self, model: Any) -> Inputs:
        """Run the prompts that come before the graft's prompt, and return its inputs."""
        feed = Feed(self.job["model"], getattr(torch, self.source.dtype), self.source.device)
        return feed.run_before(self.loaded, model, self.question)

    def outputs(self, model: Any, generate_options: Fact | None = None) -> list[Output]:
        """Return every layer's output and the logits of the prompt, or the logits of every step.

        ``generate_options`` are further arguments of generate().
        """
        decodes = self.question["what"] == "decode"
        tensors = self._decode(model, generate_options or {}) if decodes else self._forward(model)
        return [self._output(name, tensor) for name, tensor in tensors]

    def _forward(self, model: Any) -> list[tuple[str, torch.Tensor]]:
        with (
            layers.recorded(model) as layer_outputs,
            progress.forward(self.inputs.kwargs, times=_WATCHED_COST),
        ):
            result = model(**self.inputs.kwargs)
        logits = outputs.logits_of(result)
        return [*layer_outputs, *([] if logits is None else [("logits", logits)])]

    def _decode(self, model: Any, generate_options: Fact) -> list[tuple[str, torch.Tensor]]:
        kwargs = {k: v for k, v in self.inputs.kwargs.items() if k != "decoder_input_ids"}
        ids = list(self.question["forced"].values())
        steps = max(map(len, ids))
        with progress.forwards(steps, kwargs, times=_WATCHED_COST):
            output = model.generate(
                **kwargs,
                **generate_options,
                max_new_tokens=steps,
                **GREEDY_LOGITS,
                logits_processor=forcing(ids),
            )
        return [
            (f"{row} step {step}", output.logits[step][index])
            for index, (row, tokens) in enumerate(self.question["forced"].items())
            for step in range(min(len(tokens), len(output.logits)))
        ]

    def _output(self, name: str, tensor: torch.Tensor) -> Output:
        rows = self._real_rows(tensor)
        whole = tensor_hash(tensor)
        return Output(name, whole, whole if rows is tensor else tensor_hash(rows), rows)

    def _real_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the rows without padding: all, unless dimension 1 is the padded axis."""
        real_rows = self.inputs.real_rows
        if real_rows is None or self.question["what"] == "decode" or tensor.ndim < 3:
            return tensor
        if tensor.shape[:2] != (len(real_rows), token_width(self.inputs.kwargs)):
            return tensor
        return torch.cat([tensor[row, start:stop] for row, (start, stop) in enumerate(real_rows)])

    def mismatch(self, outputs: list[Output]) -> str:
        """Return where the outputs differ from those of the cell's run; '' if they do not."""
        expected = self.question["expected"]
        if len(expected) != len(outputs):
            return f"{len(outputs)} outputs and {len(expected)} in the cell's own run"
        if not any(expected):
            return "the cell's own run stored nothing to compare with"
        wrong = [
            o.name
            for o, digest in zip(outputs, expected, strict=True)
            if digest not in {"", o.whole}
        ]
        return f"{wrong[0]} differs from the cell's own run" if wrong else ""
