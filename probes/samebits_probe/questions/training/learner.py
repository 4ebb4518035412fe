"""A model in training mode without chance: forward, backward and one update."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from samebits_probe.model import choice, named, outputs, precision, targets
from samebits_probe.model.inputs import in_dtype
from samebits_probe.model.leftover import seed
from samebits_probe.process import progress
from samebits_probe.questions.training import chance
from samebits_probe.questions.training.batches import Batch, NoLoss, problem_of

LEARNING_RATE = 1e-3
_COST = 10
"""Cost limit of a forward with its backward, watched and in float64, in plain forwards."""


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
        self._chance = chance.chance_of(model)
        chance.switch_off(model, self._chance)
        model.train()
        self.leaks: set[str] = set()
        self._lessons: dict[str, dict[str, torch.Tensor]] = {}
        self.cost = _COST

    @contextlib.contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Run code in the precision of this learner, and note what escapes it."""
        if self.promoted is None:
            with targets.order_free():
                yield
            return
        watch = precision.Leaks(precision.smaller_than(self.promoted))
        with precision.arithmetic_in(self.promoted, self.dtype), watch, targets.order_free():
            yield
        self.leaks |= watch.leaks

    def forward(self, kwargs: dict[str, Any], what: str = "forward") -> Trained:
        """Return the loss of a batch, with its graph."""
        seed(chance.SEED)
        with self.arithmetic(), progress.forward(kwargs, what, times=self.cost):
            return self._forward(kwargs)

    def _forward(self, kwargs: dict[str, Any]) -> Trained:
        output = self.model(**self._fed(kwargs))
        loss = getattr(output, "loss", None)
        if loss is None or loss.numel() != 1:
            raise NoLoss(f"forward of {type(self.model).__name__} returns no loss for labels")
        parts = getattr(output, "loss_dict", None) or {}  # of losses that match boxes or masks
        others = {
            name: value
            for name, value in (*output.items(), *parts.items())
            if name != "loss" and isinstance(value, torch.Tensor) and not value.ndim
        }
        return Trained(loss, _logits(output), others)

    def learn(self, kwargs: dict[str, Any], what: str = "training step") -> Trained:
        """Return the loss of a batch after its backward; the gradients are on the parameters."""
        self.model.zero_grad(set_to_none=True)
        return self.learn_more(kwargs, what)

    def learn_more(self, kwargs: dict[str, Any], what: str = "training step") -> Trained:
        """Do the same without forgetting the gradients so far, as accumulation does."""
        seed(chance.SEED)
        with self.arithmetic(), progress.forward(kwargs, what, times=self.cost):
            trained = self._forward(kwargs)
            if trained.loss.requires_grad:
                self.backward(trained.loss)
        return trained

    def lesson(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the loss and all gradients of a batch, computed once: the step repeats."""
        if batch.name not in self._lessons:
            loss = self.learn(batch.kwargs, batch.name).loss.detach().reshape(1)
            self._lessons[batch.name] = {"loss": loss, **self.gradients()}
        return dict(self._lessons[batch.name])

    @property
    def draws(self) -> bool:
        """True if its training draws numbers, unless chance is off as it is here."""
        return bool(self._chance)

    @contextlib.contextmanager
    def with_chance(self) -> Iterator[None]:
        """Switch on for a while what draws numbers, with the seed that a forward sets."""
        with chance.switched_on(self.model, self._chance):
            yield

    @contextlib.contextmanager
    def taking(self, batch: Batch) -> Iterator[None]:
        """Have the model as a batch means it for a while: with its problem, and with dropout as a factor."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(problem_of(self.model, batch))
            if batch.drops:
                settings = chance.dropouts(self._chance)
                stack.enter_context(chance.as_factors(self.model, settings))
            yield

    def back(self, tensor: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        """Go back from the loss of a forward, or from its logits with a gradient at them."""
        with self.arithmetic():
            self.backward(tensor, gradient)

    def backward(self, tensor: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        """Compute gradients inside of :meth:`arithmetic`; all code of it runs in that precision."""
        if self.promoted is None:
            tensor.backward(gradient)
            return
        # both public functions switch the promotion off, also for blocks that run again in them
        torch.autograd.graph._engine_run_backward(
            (tensor,),
            (torch.ones_like(tensor) if gradient is None else gradient,),
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
        torch.optim.AdamW(parameters, lr=LEARNING_RATE, foreach=False).step()
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
        learner = Learner(twin, self.dtype, torch.float64)
        learner._chance = self._chance
        return learner

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
            return _logits(self.model(**self._fed(kwargs)))

    def _fed(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments in the learner's dtype, with what the model needs beside token ids."""
        kwargs = named.beside(self.model, kwargs.get(choice.TOKENS)) | kwargs
        return in_dtype(kwargs, self.promoted or self.dtype)


def _logits(output: Any) -> torch.Tensor | None:
    """Return the logits of an output; what is not the loss, such as start_logits, where it has no ``logits``."""
    logits = outputs.logits_of(output)
    if logits is None or logits is not getattr(output, "loss", None):
        return logits
    return outputs.logits_of({name: value for name, value in output.items() if name != "loss"})


def as_json(value: float) -> float | str:
    """Return a number as records have it: NaN and infinities are words."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
