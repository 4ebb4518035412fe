"""A checkpoint of ShieldGemma 2 with the names of the hub is loaded, and not filled with random values."""

import torch
import transformers
from sizes import TEXT_128, TOWER

CASE = {
    # the layout of the published checkpoint; 4.52 renamed the modules
    "made": "4.51.3",
    "symptom": "ShieldGemma 2 loads with random weights: none of the checkpoint's names fit",
    "area": "loading and saving",
    "signals": ("logits", "hidden_states", "weights"),
    "findings": ("SB304", "SB308", "SB310"),
    "says": (r"language_model\.model",),
    "source": (
        "ShieldGemma2ForImageClassification",
        "modeling_shieldgemma2.py",
        "modeling_utils.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny ShieldGemma 2."""
    text = {"model_type": "gemma3_text", **TEXT_128, "head_dim": 8, "sliding_window": 16}
    vision = {**TOWER, "image_size": 16, "patch_size": 8, "vision_use_head": False}
    config = transformers.ShieldGemma2Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=120,
        boi_token_index=121,
        eoi_token_index=122,
        yes_token_index=10,
        no_token_index=11,
    )
    transformers.ShieldGemma2ForImageClassification(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the numbers of tensors that a load finds missing and unexpected."""
    torch.manual_seed(1)
    _, info = transformers.ShieldGemma2ForImageClassification.from_pretrained(
        folder, output_loading_info=True
    )
    missing = [name for name in info["missing_keys"] if "lm_head" not in name]
    return {"missing": len(missing), "unexpected": len(info["unexpected_keys"])}
