"""Two packed rows stay apart in Gemma 3, if one ends and the other one begins with an image."""

from itertools import chain

import torch
import transformers
from sizes import TEXT_128, TOWER

CASE = {
    "symptom": "a packed row of Gemma 3 that begins with an image sees the image that ends the row before it",
    "says": (r"pack.*token_type_ids", r"pack.*pixel_values"),
    "source": (
        "create_causal_mask",
        "create_sliding_window_causal_mask",
        "masking_utils.py",
    ),
}
IMAGE = [120] * 4


def make(folder: str) -> None:
    """Write a tiny Gemma 3 of which an image has four tokens."""
    text = {
        **TEXT_128,
        "head_dim": 8,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    vision = {**TOWER, "image_size": 16, "patch_size": 8, "vision_use_head": False}
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=120,
        boi_token_index=121,
        eoi_token_index=122,
        initializer_range=0.3,
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the logits of a row are the same alone and packed behind another row."""
    model = transformers.Gemma3ForConditionalGeneration.from_pretrained(folder).eval()
    torch.manual_seed(1)
    images = torch.randn(2, 3, 16, 16)
    first, second = [2, 5, 6, *IMAGE], [*IMAGE, 7, 8]
    with torch.no_grad():
        packed = model(**inputs([first, second]), pixel_values=images).logits[0, len(first) :]
        alone = model(**inputs([second]), pixel_values=images[1:]).logits[0]
    return {"alone as packed": bool((packed - alone).abs().max() < 1e-3)}


def inputs(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    """Return rows as one, with positions that begin anew in each."""
    ids = torch.tensor([[*chain(*rows)]])
    positions = torch.cat([torch.arange(len(row)) for row in rows])[None]
    return {"input_ids": ids, "position_ids": positions, "token_type_ids": (ids == 120).long()}
