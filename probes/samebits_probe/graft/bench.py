"""One model as its cell loads it, the prompt that is asked for, and the outputs whose bytes count."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model import decode
from samebits_probe.model import feed as model_feed
from samebits_probe.model import layers as model_layers
from samebits_probe.model import load as model_load
from samebits_probe.model.decode import forcing
from samebits_probe.model.tensor import Keeper, tensor_hash
from samebits_probe.process import progress

if TYPE_CHECKING:
    from samebits_probe.model.inputs import Inputs

Fact = dict[str, Any]

_DEAR = 20
"""What a forward costs of which all places are watched, in plain ones of a small model."""


class Output(NamedTuple):
    """One tensor whose bytes must come out the same."""

    name: str
    whole: str
    rows: str
    """Hash of what is no padding."""
    tensor: torch.Tensor
    """What is no padding."""


class Bench:
    """One model, loaded as the cell loads it, and the prompt that is asked for."""

    def __init__(self, job: Fact) -> None:
        variant, model, store = job["cell"]["variant"], job["model"], job["store"]
        self.job = job
        self.asked = job["graft"]
        self.source = model_load.Source.of(model, variant)
        self.keeper = Keeper(store["root"], store["limit"], [])

    def load(self) -> None:
        """Load the model and run what comes before the prompt, as the cell's own run did."""
        progress.begin("load")
        self.loaded = model_load.load(self.source)
        progress.begin("graft")
        self.inputs = self.before(self.loaded.model)

    def before(self, model: Any) -> Inputs:
        """Run the prompts that come before the one that is asked for, and return its inputs."""
        chosen = None
        decodes = self.asked["what"] == "decode"
        dtype = getattr(torch, self.source.dtype)
        feed = model_feed.Feed(self.job["model"], dtype, self.source.device)
        for name, inputs in feed.all(self.loaded.tokenizer):
            wanted = name == self.asked["prompt"]
            chosen = inputs if wanted else chosen
            if wanted and not decodes:
                break
            # after a prompt that raised, the cell's own run went on
            with suppress(Exception), progress.forward(inputs.kwargs, f"forward {name}"):
                model(**inputs.kwargs)
        assert chosen is not None, "the host names a prompt that the cell has run"
        return chosen

    def outputs(self, model: Any, more: Fact | None = None) -> list[Output]:
        """Run the prompt: every layer's output and the logits, or the logits of every step.

        ``more`` are further arguments of generate().
        """
        decodes = self.asked["what"] == "decode"
        found = self._decoded(model, more or {}) if decodes else self._forward(model)
        return [self._output(name, tensor) for name, tensor in found]

    def _forward(self, model: Any) -> list[tuple[str, torch.Tensor]]:
        with (
            model_layers.recorded(model) as layers,
            progress.forward(self.inputs.kwargs, times=_DEAR),
        ):
            result = model(**self.inputs.kwargs)
        logits = model_layers.logits_of(result)
        return [*layers, *([] if logits is None else [("logits", logits)])]

    def _decoded(self, model: Any, more: Fact) -> list[tuple[str, torch.Tensor]]:
        kwargs = {k: v for k, v in self.inputs.kwargs.items() if k != "decoder_input_ids"}
        ids = list(self.asked["forced"].values())
        steps = max(map(len, ids))
        with progress.forwards(steps, kwargs, times=_DEAR):
            output = model.generate(
                **kwargs,
                **more,
                max_new_tokens=steps,
                **decode.GREEDY_LOGITS,
                logits_processor=forcing(ids),
            )
        return [
            (f"{row} step {step}", output.logits[step][index])
            for index, (row, tokens) in enumerate(self.asked["forced"].items())
            for step in range(min(len(tokens), len(output.logits)))
        ]

    def _output(self, name: str, tensor: torch.Tensor) -> Output:
        rows = self._rows(tensor)
        whole = tensor_hash(tensor)
        return Output(name, whole, whole if rows is tensor else tensor_hash(rows), rows)

    def _rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what stands in real rows: all of it, unless dimension 1 is the padded axis."""
        real = self.inputs.real_rows
        if real is None or self.asked["what"] == "decode" or tensor.ndim < 3:
            return tensor
        width = self.inputs.kwargs["input_ids"].shape[1]
        if tensor.shape[:2] != (len(real), width):
            return tensor
        return torch.cat([tensor[row, start:stop] for row, (start, stop) in enumerate(real)])

    def mismatch(self, outputs: list[Output]) -> str:
        """Return where the outputs are not those that the cell's own run gave; '' if they are."""
        expected = self.asked["expected"]
        if len(expected) != len(outputs):
            return f"{len(outputs)} outputs and {len(expected)} in the cell's own run"
        if not any(expected):
            return "the cell's own run kept nothing to compare it with"
        wrong = [
            o.name for o, known in zip(outputs, expected, strict=True) if known not in {"", o.whole}
        ]
        return f"{wrong[0]} is not as in the cell's own run" if wrong else ""
