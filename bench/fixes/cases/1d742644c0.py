"""Qwen2.5-VL does not take an image's positions for packed rows."""

import torch
import transformers
from sizes import QWEN_IDS, QWEN_VISION, TEXT_128

CASE = {
    "symptom": "without an attention mask, text behind an image in Qwen2.5-VL does not see what is before it",
    "signals": ("logits", "hidden_states", "outputs"),
    "says": (r"text_position_ids",),
    "source": ("Qwen2_5_VLTextModel", "modeling_qwen2_5_vl.py"),
}
IMAGE = 120


def make(folder: str) -> None:
    """Write a tiny Qwen2.5-VL."""
    config = transformers.Qwen2_5_VLConfig(
        text_config={**TEXT_128, "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}},
        vision_config={"depth": 2, **QWEN_VISION, "window_size": 16, "fullatt_block_indexes": [1]},
        image_token_id=IMAGE,
        **QWEN_IDS,
    )
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether a mask of ones changes the logits of a text with an image."""
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder).eval()
    torch.manual_seed(1)
    ids = torch.tensor([[5, 6, 122, *[IMAGE] * 4, 123, 7, 8]])
    inputs = {
        "input_ids": ids,
        "pixel_values": torch.randn(16, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "use_cache": False,
    }
    with torch.no_grad():
        without = model(**inputs).logits
        ones = model(**inputs, attention_mask=torch.ones_like(ids)).logits
    return {"a mask of ones changes logits": bool((without - ones).abs().max() > 1e-3)}
