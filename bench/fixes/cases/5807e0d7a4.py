"""GLM-Image gives each row of a batch the positions of its own images."""

import inspect

import torch
import transformers
from sizes import GROUPED

CASE = {
    "symptom": "the second row of a batch of GLM-Image gets the positions of the first row's image",
    "signals": ("logits", "hidden_states"),
    "findings": ("SB705",),
    "says": (r"images_per_sample", r"get_rope_index"),
    "source": ("get_rope_index", "modeling_glm_image.py"),
}
START, END, IMAGE = 50, 51, 52


def make(folder: str) -> None:
    """Write a tiny GLM-Image."""
    text = {
        "vocab_size": 99,
        "vision_vocab_size": 99,
        **GROUPED,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [2, 1, 1],
        },
        "pad_token_id": 0,
        "eos_token_id": 1,
        "initializer_range": 0.3,
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "num_heads": 4,
        "intermediate_size": 48,
        "image_size": 64,
        "patch_size": 16,
        "spatial_merge_size": 1,
    }
    vq = {"embed_dim": 16, "latent_channels": 32, "num_embeddings": 32}
    config = transformers.GlmImageConfig(
        text_config=text,
        vision_config=vision,
        vq_config=vq,
        image_token_id=IMAGE,
        image_start_token_id=START,
        image_end_token_id=END,
    )
    transformers.GlmImageForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether a row has the same positions alone and behind a row with another image."""
    model = transformers.GlmImageForConditionalGeneration.from_pretrained(folder).eval().model
    grids = torch.tensor([[1, 2, 3], [1, 1, 1], [1, 3, 2], [1, 1, 1]])
    row = [START, *[IMAGE] * 6, END, 5, 6, START]
    both = positions(model, torch.tensor([row, row]), grids)
    alone = positions(model, torch.tensor([row]), grids[2:])
    return {"positions are equal": bool(torch.equal(both[:, 1], alone[:, 0]))}


def positions(model: torch.nn.Module, ids: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
    """Return positions; each row has an image and one that is to be generated."""
    inputs = {"image_grid_thw": grids, "attention_mask": torch.ones_like(ids)}
    if "images_per_sample" in inspect.signature(model.get_rope_index).parameters:
        inputs["images_per_sample"] = torch.tensor([2] * len(ids))  # as the processor gives it
    return model.get_rope_index(ids, **inputs)[0]
