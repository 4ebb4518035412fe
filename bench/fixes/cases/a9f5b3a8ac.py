"""Qwen2.5-VL spaces the times of videos, and not the place of an image."""

import torch
import transformers
from sizes import QWEN2_5_VISION, QWEN_IDS, TEXT_128

CASE = {
    "before": "5.5.3",
    "symptom": "Qwen2.5-VL puts an image at a time that is tokens_per_second times its place: other logits for every image",
    "signals": ("logits", "hidden_states", "outputs", "decode", "greedy"),
    "says": (r"get_rope_index", r"get_vision_position_ids"),
    "source": ("get_rope_index", "Qwen2_5_VLModel", "modeling_qwen2_5_vl.py"),
}
IMAGE = 120


def make(folder: str) -> None:
    """Write a tiny Qwen2.5-VL."""
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            **TEXT_128,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [2, 1, 1],
            },
        },
        vision_config={**QWEN2_5_VISION, "tokens_per_second": 4},
        image_token_id=IMAGE,
        **QWEN_IDS,
    )
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the positions of a text with an image."""
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.tensor([[5, 6, 122, *[IMAGE] * 4, 123, 7, 8]])
    positions, _ = model.model.get_rope_index(
        input_ids=ids,
        mm_token_type_ids=(ids == IMAGE).int(),
        image_grid_thw=torch.tensor([[1, 4, 4]]),
        attention_mask=torch.ones_like(ids),
    )
    return positions[:, 0].tolist()
