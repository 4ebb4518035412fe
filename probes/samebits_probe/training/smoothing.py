"""The loss with label smoothing, which Trainer computes of a model's logits in place of its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from samebits_probe.training.batches import Batch
    from samebits_probe.training.learner import Learner

FACTOR = 0.1
"""label_smoothing_factor of TrainingArguments, as papers have it."""
NAME = "label smoothing"


def smoothed(
    learner: Learner, batch: Batch, logits: torch.Tensor, *, shifted: bool
) -> torch.Tensor | None:
    """Return the smoothed loss of logits; None where the labels are not classes of them.

    Trainer.compute_loss takes the labels out of the batch and gives them with the output to
    LabelSmoother (trainer_pt_utils.py), which shifts them for a causal language model.
    """
    from transformers.trainer_pt_utils import LabelSmoother  # noqa: PLC0415  no other job needs it

    labels = batch.kwargs.get("labels")
    if labels is None or labels.is_floating_point() or labels.shape != logits.shape[:-1]:
        return None
    with learner.arithmetic():
        loss: torch.Tensor = LabelSmoother(epsilon=FACTOR)(
            {"logits": logits}, labels, shift_labels=shifted
        )
    return loss
