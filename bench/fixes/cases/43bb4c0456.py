"""The seconds of a video's grid in Qwen2.5-VL become whole numbers."""

import torch
import transformers
from sizes import QWEN2_5_VISION, TEXT_128

CASE = {
    "symptom": "second_per_grid_ts of Qwen2.5-VL is cast to the type of positions: half a second becomes 0",
    "signals": ("logits", "hidden_states", "greedy"),
    "says": (r"second_per_grid_t",),
    "source": ("get_rope_index", "modeling_qwen2_5_vl.py"),
}
VIDEO = 121


def make(folder: str) -> None:
    """Write a tiny Qwen2.5-VL."""
    config = transformers.Qwen2_5_VLConfig(
        **TEXT_128,
        rope_scaling={"type": "mrope", "mrope_section": [2, 1, 1]},
        vision_config={**QWEN2_5_VISION, "tokens_per_second": 4},
        image_token_id=120,
        video_token_id=VIDEO,
        vision_start_token_id=122,
        vision_end_token_id=123,
    )
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the times of the tokens of a video with two grids a second."""
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.tensor([[5, 122, *[VIDEO] * 8, 123, 6]])
    ropes = getattr(model, "get_rope_index", None) or model.model.get_rope_index
    positions, _ = ropes(
        input_ids=ids,
        video_grid_thw=torch.tensor([[2, 4, 4]]),
        second_per_grid_ts=[0.5],
        attention_mask=torch.ones_like(ids),
    )
    return {"times": positions[0, 0].tolist()}
