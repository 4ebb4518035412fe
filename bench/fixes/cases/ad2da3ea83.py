"""SAM can be trained."""

import torch
import transformers

CASE = {
    "before": "4.56.0",
    "after": "4.56.1",
    "symptom": "a forward of SAM in training mode raises AttributeError for dropout_p",
    "findings": ("SB840",),
    "failure": "has no attribute 'dropout_p'",
    "says": (r"dropout_p",),
    "source": ("SamAttention", "modeling_sam.py"),
}


def make(folder: str) -> None:
    """Write a tiny SAM."""
    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 16,
            "output_channels": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "window_size": 2,
            "global_attn_indexes": [1],
            "mlp_dim": 32,
            "num_pos_feats": 8,
        },
        prompt_encoder_config={
            "hidden_size": 16,
            "image_size": 32,
            "patch_size": 8,
            "mask_input_channels": 8,
        },
        mask_decoder_config={
            "hidden_size": 16,
            "mlp_dim": 32,
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "iou_head_hidden_dim": 16,
        },
    )
    transformers.SamModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the masks of a point in training mode."""
    model = transformers.SamModel.from_pretrained(folder).train()
    output = model(
        pixel_values=torch.randn(1, 3, 32, 32),
        input_points=torch.tensor([[[[8.0, 8.0]]]]),
    )
    return list(output.pred_masks.shape)
