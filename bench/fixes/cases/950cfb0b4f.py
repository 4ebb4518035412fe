"""A training step of PaliGemma does not attend to padding."""

import torch
import transformers
from sizes import SMALL, TOWER

CASE = {
    "symptom": "a training step of PaliGemma attends to padding: its loss depends on the padding's ids",
    "signals": ("loss", "gradients"),
    "findings": ("SB840",),
    "source": ("_update_causal_mask", "modeling_paligemma.py"),
}


def make(folder: str) -> None:
    """Write a tiny PaliGemma of which an image has four tokens."""
    text = {
        "model_type": "gemma",
        "vocab_size": 128,
        **SMALL,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "pad_token_id": 0,
        "initializer_range": 0.3,
    }
    vision = {
        **TOWER,
        "image_size": 16,
        "patch_size": 8,
        "projection_dim": 32,
        "vision_use_head": False,
    }
    config = transformers.PaliGemmaConfig(
        text_config=text, vision_config=vision, image_token_index=127, projection_dim=32
    )
    transformers.PaliGemmaForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the loss of a row is another one with other ids in its padding."""
    model = transformers.PaliGemmaForConditionalGeneration.from_pretrained(folder).train()
    torch.manual_seed(1)
    pixels = torch.randn(1, 3, 16, 16)
    losses = [loss(model, padding, pixels) for padding in (0, 9)]
    return {"loss depends on padding": abs(losses[0] - losses[1]) > 1e-4}


def loss(model: transformers.PreTrainedModel, padding: int, pixels: torch.Tensor) -> float:
    """Return the loss of a row whose two last tokens are padding."""
    ids = torch.tensor([[127, 127, 127, 127, 2, 5, 6, 7, 8, 1, padding, padding]])
    mask = torch.tensor([[1] * 10 + [0, 0]])
    types = torch.tensor([[0] * 7 + [1] * 3 + [0, 0]])
    output = model(
        input_ids=ids,
        pixel_values=pixels,
        attention_mask=mask,
        token_type_ids=types,
        labels=ids.masked_fill((types == 0) | (mask == 0), -100),
    )
    return float(output.loss)
