"""A tiny SAM, which several cases share."""

from __future__ import annotations

import transformers


def save_model(folder: str) -> None:
    """Write it without a processor."""
    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 32,
            "output_channels": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 8,
            "mlp_dim": 48,
            "window_size": 2,
            "global_attn_indexes": [0],
            "num_pos_feats": 8,
        },
        prompt_encoder_config={
            "hidden_size": 16,
            "image_size": 32,
            "patch_size": 8,
            "mask_input_channels": 4,
            "num_point_embeddings": 4,
        },
        mask_decoder_config={
            "hidden_size": 16,
            "mlp_dim": 24,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
            "iou_head_depth": 2,
        },
    )
    transformers.SamModel(config).save_pretrained(folder)


def image_processor() -> transformers.SamImageProcessor:
    """Return its image processor."""
    return transformers.SamImageProcessor(
        size={"longest_edge": 32}, pad_size={"height": 32, "width": 32}
    )
