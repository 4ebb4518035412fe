"""Qwen3VL generates several answers to a video."""

import torch
from sizes import TEXT
from transformers import AutoModelForImageTextToText, Qwen3VLConfig, Qwen3VLForConditionalGeneration

CASE = {
    "symptom": "generate with a video and num_return_sequences=2 raises",
    "area": "generation",
    "failure": "split",
    "signals": ("greedy",),
    "says": ("_expand_inputs_for_generation", "video"),
    "source": ("_expand_inputs_for_generation", "modeling_qwen3_vl.py"),
}


def make(folder: str) -> None:
    """Write the artefact."""
    text = {
        **TEXT,
        "head_dim": 8,
        "rope_scaling": {
            "rope_type": "default",
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "patch_size": 4,
        "out_hidden_size": 32,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
        "spatial_merge_size": 2,
    }
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=60,
        video_token_id=61,
        vision_start_token_id=62,
        vision_end_token_id=63,
    )
    Qwen3VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    model = AutoModelForImageTextToText.from_pretrained(folder)
    frame = [62, 61, 61, 61, 61, 63]
    ids = torch.tensor([[5, *frame, *frame, 7]])
    inputs = {
        "pixel_values_videos": torch.linspace(-1, 1, 32 * 96).reshape(32, 96),
        "video_grid_thw": torch.tensor([[2, 4, 4]]),
    }
    ids, expanded = model._expand_inputs_for_generation(expand_size=2, input_ids=ids, **inputs)
    return {
        "rows": len(ids),
        "patches": len(expanded["pixel_values_videos"]),
        "videos": len(expanded["video_grid_thw"]),
    }
