"""The vision part of Qwen2.5-VL attends within each image alone."""

import hashlib

import torch
import transformers
from sizes import QWEN2_5_VISION, QWEN_IDS, TEXT_128

CASE = {
    "symptom": "SDPA with a mask over all images rounds otherwise than each image for itself: other features in half precision",
    "signals": ("hidden_states", "logits", "outputs"),
    "findings": ("SB601",),
    "says": (r"Qwen2_5_VLVision(Sdpa)?Attention",),
    "source": (
        "Qwen2_5_VLVisionAttention",
        "Qwen2_5_VLVisionSdpaAttention",
        "_prepare_attention_mask",
        "modeling_qwen2_5_vl.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Qwen2.5-VL."""
    config = transformers.Qwen2_5_VLConfig(
        text_config={**TEXT_128, "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}},
        vision_config={**QWEN2_5_VISION, "initializer_range": 0.3},
        image_token_id=120,
        **QWEN_IDS,
    )
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return a digest of the features of two images in bfloat16."""
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
        folder, torch_dtype=torch.bfloat16
    ).eval()
    torch.manual_seed(1)
    pixels = torch.randn(36 + 1296, 3 * 2 * 4 * 4).to(torch.bfloat16)
    grid = torch.tensor([[1, 6, 6], [1, 36, 36]])
    with torch.no_grad():
        features = model.visual(pixels, grid_thw=grid)
    return hashlib.sha256(features.float().numpy().tobytes()).hexdigest()[:16]
