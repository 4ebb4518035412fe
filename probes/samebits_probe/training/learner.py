"""A model in training mode without chance: forward, backward and one update."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model import layers, precision
from samebits_probe.process import progress
from samebits_probe.training.batches import NoLoss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits_probe.training.batches import Batch

LEARNING_RATE = 1e-3
_CHANCE = re.compile(r"drop(?!ped)|jitter|mask_(time|feature)_prob|noise_std")
"""Attributes of modules and fields of configs that make a training forward draw numbers."""
_COST = 10
"""Cost limit of a forward with its backward, watched and in float64, in plain forwards."""
_MAX_CONFIG_DEPTH = 4


class Trained(NamedTuple):
    """What one forward with labels computed."""

    loss: torch.Tensor
    logits: torch.Tensor | None
    others: dict[str, torch.Tensor]
    """Every further scalar that it returned, such as aux_loss."""


class Learner:
    """One model, and the precision in which it trains."""

    def __init__(self, model: Any, dtype: torch.dtype, promoted: torch.dtype | None = None) -> None:
        """Take a model, which is changed: no dropout, training mode.

        ``dtype`` is that of the cell; ``promoted`` the one that all of its code gets instead.
        """
        self.model = model
        self.dtype = dtype
        self.promoted = promoted
        without_chance(model)
        model.train()
        self.leaks: set[str] = set()

    @contextlib.contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Run code in the precision of this learner, and note what escapes it."""
        if self.promoted is None:
            yield
            return
        watch = precision.Leaks(precision.smaller_than(self.promoted))
        with precision.arithmetic_in(self.promoted, self.dtype), watch:
            yield
        self.leaks |= watch.leaks

    def forward(self, kwargs: dict[str, Any], what: str = "forward") -> Trained:
        """Return the loss of a batch, with its graph.

        Raises:
            NoLoss: forward returns no loss.

        """
        torch.manual_seed(0)
        with self.arithmetic(), progress.forward(kwargs, what, times=_COST):
            return self._forward(kwargs)

    def _forward(self, kwargs: dict[str, Any]) -> Trained:
        output = self.model(**self._in_dtype(kwargs))
        loss = getattr(output, "loss", None)
        if loss is None or loss.numel() != 1:
            msg = f"forward of {type(self.model).__name__} returns no loss for labels"
            raise NoLoss(msg)
        others = {
            name: value
            for name, value in output.items()
            if name != "loss" and isinstance(value, torch.Tensor) and not value.ndim
        }
        return Trained(loss, layers.logits_of(output), others)

    def learn(self, kwargs: dict[str, Any], what: str = "training step") -> Trained:
        """Return the loss of a batch after its backward; the gradients are on the parameters."""
        self.model.zero_grad(set_to_none=True)
        return self.learn_more(kwargs, what)

    def learn_more(self, kwargs: dict[str, Any], what: str = "training step") -> Trained:
        """Do the same without forgetting the gradients so far, as accumulation does."""
        torch.manual_seed(0)
        with self.arithmetic(), progress.forward(kwargs, what, times=_COST):
            trained = self._forward(kwargs)
            if trained.loss.requires_grad:
                self._backward(trained.loss)
        return trained

    def _backward(self, loss: torch.Tensor) -> None:
        if self.promoted is None:
            loss.backward()
            return
        # both public functions switch the promotion off, also for blocks that run again in them
        torch.autograd.graph._engine_run_backward(
            (loss,),
            (torch.ones_like(loss),),
            False,
            False,
            (),
            allow_unreachable=True,
            accumulate_grad=True,
        )

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return copies of the gradients by the names of their parameters."""
        return {
            name: (p.grad.to_dense() if p.grad.is_sparse else p.grad).detach().clone()
            for name, p in self.model.named_parameters()
            if p.grad is not None
        }

    def norm(self) -> float:
        """Return the global norm of the gradients, as clip_grad_norm_ computes it."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        if not gradients:
            return 0.0
        norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
        return float(torch.linalg.vector_norm(torch.stack(norms)))

    def behind_update(self, batch: Batch) -> float:
        """Return the loss of a batch behind one step of AdamW; the weights are then as before."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        before = [p.detach().clone() for p in parameters]
        optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, foreach=False)
        optimizer.step()
        try:
            with torch.no_grad():
                return float(self.forward(batch.kwargs, "behind the update").loss)
        finally:
            with torch.no_grad():
                for parameter, values in zip(parameters, before, strict=True):
                    parameter.copy_(values)

    def in_float64(self) -> Learner:
        """Return a copy in float64 whose code also gets only float64."""
        self.model.zero_grad(set_to_none=True)
        twin = precision.copy_in(torch.float64, self.model, {})
        return Learner(twin, self.dtype, torch.float64)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model into evaluation mode for a while, without gradients."""
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.train()

    def evaluated(self, kwargs: dict[str, Any]) -> torch.Tensor | None:
        """Return the logits of a forward in evaluation mode."""
        with self.evaluating(), self.arithmetic():
            return layers.logits_of(self.model(**self._in_dtype(kwargs)))

    def _in_dtype(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        wanted = self.promoted or self.dtype
        return {
            name: value.to(wanted)
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else value
            for name, value in kwargs.items()
        }


def without_chance(model: Any) -> None:
    """Switch off what draws numbers in training: dropout, jitter, masks over time."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        _zero(module, vars(module))
    _quiet_config(model.config, _MAX_CONFIG_DEPTH)


def _quiet_config(config: Any, depth: int) -> None:
    fields = vars(config)
    _zero(config, fields)
    if getattr(config, "apply_spec_augment", False):
        config.apply_spec_augment = False
    for part in list(fields.values()):
        if depth and hasattr(part, "to_dict") and hasattr(part, "__dict__"):
            _quiet_config(part, depth - 1)


def _zero(owner: Any, fields: dict[str, Any]) -> None:
    for name, value in list(fields.items()):
        if isinstance(value, float) and value and _CHANCE.search(name):
            setattr(owner, name, 0.0)


def as_json(value: float) -> float | str:
    """Return a number as records have it: NaN and infinities are words."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
