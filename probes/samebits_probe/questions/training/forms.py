"""Labels of another form than a class of each token or row, for the heads whose loss takes them.

What a head takes follows from its outputs, from names of its forward's arguments, and where both are those of other
heads from the name of its class.
"""

from __future__ import annotations

from typing import Any

import torch

from samebits_probe.model import choice, named
from samebits_probe.model.inputs import choices, n_rows, seeded_numbers, token_config

Facts = dict[str, Any]
_DEPTH = "predicted_depth"
WHOLE = "target_values"
"""What belongs to a series as a whole."""
_FRAMES = "ForAudioFrameClassification"
_LARGEST, _LEAST = 2.0, 0.5
"""Distances lie between them: the loss takes their logarithms."""


def of_choices(model: Any, rows: int, length: int) -> Facts:
    """Return rows of several choices without padding, of which another one is right in each row.

    Some heads read the first token of a choice and others its last one, so that padding on either side would be read.
    """
    made = choices("training", [length] * rows, token_config(model.config))
    return made | {"labels": torch.arange(rows) % made[choice.TOKENS].shape[1]}


def of_output(model: Any, output: Any, logits: torch.Tensor) -> torch.Tensor | None:
    """Return labels that are no class for each place of the logits; None where they are."""
    if getattr(output, _DEPTH, None) is not None:
        spread = seeded_numbers("training", _DEPTH, (*output[_DEPTH].shape,))
        return _LEAST + (spread + 1) / 2 * (_LARGEST - _LEAST)
    if type(model).__name__.endswith(_FRAMES):  # several classes may be true of a frame
        n_classes = logits.shape[-1]
        right = torch.arange(logits[..., 0].numel()).reshape(logits.shape[:-1]) % n_classes
        return torch.nn.functional.one_hot(right, n_classes)
    return None


def of_series(model: Any, inputs: Facts) -> Facts:
    """Return what a head makes of a whole series: a class of each where it gives logits, else numbers."""
    with torch.no_grad():
        output = model(**inputs)
    name, value = next((n, v) for n, v in output.items() if torch.is_tensor(v))
    if name.endswith("logits"):
        return {WHOLE: torch.arange(len(value)) % value.shape[-1]}
    return {WHOLE: seeded_numbers("training", WHOLE, (*value.shape,))}


def beside(model: Any, rows: int) -> Facts:
    """Return the further label of each row, such as whether its second sentence is the next one."""
    names = choice.signature_of(model.forward).listed
    return {name: torch.arange(rows) % 2 for name in names if name.endswith("_label")}


def hides_patches(model: Any) -> bool:
    """Return True for a head that predicts patches; its base model takes their places as well, and has no loss."""
    names = choice.signature_of(model.forward).names
    return named.MASKED in names and model.base_model is not model


def of_patches(model: Any, inputs: Facts) -> Facts:
    """Return the places of hidden patches, and for a head that names the patches a name for each hidden one."""
    hidden = named.hidden_patches(model.config).repeat(n_rows(inputs), 1)
    if "labels" not in choice.signature_of(model.forward).names:
        return {named.MASKED: hidden}
    names = torch.arange(int(hidden.sum())) % int(model.config.vocab_size)
    return {named.MASKED: hidden, "labels": names}
