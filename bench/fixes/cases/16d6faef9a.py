"""An attention that is asked for reaches the backbone of a model."""

import transformers

CASE = {
    "symptom": "attn_implementation='eager' does not reach the backbone of Depth Anything",
    "area": "loading and saving",
    "findings": ("SB919",),
    "says": (r"attn_implementation.*backbone",),
    "source": ("DepthAnythingConfig", "configuration_depth_anything.py", "sub_configs"),
}


def make(folder: str) -> None:
    """Write a tiny Depth Anything with a backbone of DINOv2."""
    backbone = transformers.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        out_features=["stage1", "stage2"],
        reshape_hidden_states=False,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        patch_size=8,
        reassemble_hidden_size=32,
        reassemble_factors=[2, 1],
        neck_hidden_sizes=[16, 16],
        fusion_hidden_size=16,
        head_hidden_size=8,
    )
    transformers.DepthAnythingForDepthEstimation(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the attention of the model and of its backbone."""
    model = transformers.DepthAnythingForDepthEstimation.from_pretrained(
        folder, attn_implementation="eager"
    )
    parts = {"model": model, "backbone": model.backbone}
    return {name: part.config._attn_implementation for name, part in parts.items()}
