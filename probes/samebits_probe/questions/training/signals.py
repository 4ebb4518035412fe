"""The signals of a training step: logits, losses, gradients, norm, and the loss behind an update."""

from __future__ import annotations

from typing import Any

import torch

from samebits_probe.model.tensor import Keeper
from samebits_probe.process.failure import raised
from samebits_probe.questions.training import chance, origin
from samebits_probe.questions.training.batches import ITEMS, ROUTED, Batch
from samebits_probe.questions.training.formula import formula
from samebits_probe.questions.training.learner import Learner, Trained, as_json
from samebits_probe.questions.training.origin import Places

Facts = dict[str, Any]


def signals(learner: Learner, batches: list[Batch], where: Places, keeper: Keeper) -> Facts:
    """Return what a learner computes for its batches; the first one has gradients and an update."""
    main = batches[0]
    facts: Facts = {"batches": {}, "leaks": []}
    trained = learner.learn(main.kwargs, main.name)
    facts["batches"][main.name] = _of_batch(learner, main, trained, keeper)
    gradients, carriers, without = origin.gradients(learner.model, where)
    facts["gradients"] = {name: keeper.ref(gradient) for name, gradient in gradients.items()}
    facts["carriers"] = {name: n for name, n in carriers.items() if n > 1}
    facts["without"] = without
    facts["frozen"] = sorted(origin.frozen(learner.model, where) & {*without})
    facts["norm"] = as_json(learner.norm())
    facts["behind"] = as_json(learner.behind_update(main))
    learner.model.zero_grad(set_to_none=True)
    for batch in batches[1:]:
        attempted = _attempted(learner, batch, keeper)
        is_drawn = batch.drops and (
            chance.has_drawn() or _attempted(learner, batch, keeper) != attempted
        )
        if not is_drawn:
            facts["batches"][batch.name] = attempted
    facts["leaks"] = sorted(learner.leaks)
    return facts


def _attempted(learner: Learner, batch: Batch, keeper: Keeper) -> Facts:
    try:
        with learner.taking(batch):
            if batch.name == ROUTED or batch.drops:
                return _with_norm(learner, batch, keeper)
            return _of_batch(learner, batch, learner.forward(batch.kwargs, batch.name), keeper)
    except Exception as error:  # noqa: BLE001  refusing a batch is a fact
        return {"refused": raised(error)}


def _of_batch(learner: Learner, batch: Batch, trained: Trained, keeper: Keeper) -> Facts:
    loss = float(trained.loss.detach())
    facts: Facts = {
        "loss": as_json(loss),
        "others": {name: as_json(float(v.detach())) for name, v in trained.others.items()},
    }
    if trained.logits is not None:
        logits = trained.logits.detach()
        facts["logits"] = keeper.ref(_of_tokens(logits, learner.model, batch))
        if learner.promoted is None and batch.labels is not None:
            facts["formula"] = formula(logits, batch.labels, loss, batch.kwargs.get(ITEMS))
    return facts


def _of_tokens(logits: torch.Tensor, model: Any, batch: Batch) -> torch.Tensor:
    """Return the logits without those of padding, [tokens, vocabulary] where the mask has padding.

    A position of padding may attend to nothing but padding, as under a sliding window. Its logits have no
    meaning, and no loss reads them.
    """
    mask = batch.kwargs.get("attention_mask")
    if mask is None or getattr(model.config, "is_encoder_decoder", False):
        return logits
    is_token = mask.bool()
    return logits if is_token.shape != logits.shape[:-1] or is_token.all() else logits[is_token]


def _with_norm(learner: Learner, batch: Batch, keeper: Keeper) -> Facts:
    """Return the facts of a batch, such as that with the router's loss, and the norm of its gradients."""
    facts = _of_batch(learner, batch, learner.learn(batch.kwargs, batch.name), keeper)
    facts["norm"] = as_json(learner.norm())
    learner.model.zero_grad(set_to_none=True)
    return facts
