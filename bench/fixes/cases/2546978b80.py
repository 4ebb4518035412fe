"""Qwen3-VL MoE loads the experts of a checkpoint that has them as published."""

import torch
import transformers
from sizes import QWEN_IDS, QWEN_VISION, TEXT_128

CASE = {
    "made": "4.57.6",
    "symptom": "Qwen3-VL MoE loads with random experts, or not at all: the published layout is not turned round",
    "signals": ("weights", "hidden_states", "logits"),
    "findings": ("SB304", "SB308", "SB310"),
    "failure": "size mismatch",
    "says": (r"mlp\.experts\.(gate_up_proj|down_proj)",),
    "source": (
        "mlp.experts",
        "conversion_mapping.py",
        "core_model_loading.py",
        "Qwen3VLMoeTextExperts",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Qwen3-VL MoE with experts of the published layout, which is that of 4.57."""
    config = transformers.Qwen3VLMoeConfig(
        text_config={
            **TEXT_128,
            "head_dim": 8,
            "moe_intermediate_size": 24,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "rope_scaling": {
                "rope_type": "default",
                "mrope_section": [2, 1, 1],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 1,
            **QWEN_VISION,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
        },
        image_token_id=120,
        **QWEN_IDS,
    )
    transformers.Qwen3VLMoeForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the sum of the logits of a text, or the exception."""
    model = transformers.Qwen3VLMoeForConditionalGeneration.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[5, 6, 7, 8]])).logits
    return {"sum of logits": round(float(logits.sum()), 2)}
