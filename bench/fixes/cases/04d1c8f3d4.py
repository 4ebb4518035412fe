"""DETA's class head has one bias, and its model loads."""

import torch
import transformers

CASE = {
    "made": "4.57.1",
    "symptom": "DETA does not load, or its heads do not",
    "area": "loading and saving",
    "packages": ("torchvision", "scipy"),
    "signals": ("load", "weights", "outputs", "logits"),
    "says": (r"class_embed", r"(?i)deta"),
    "source": ("DetaForObjectDetection", "modeling_deta.py"),
}


def make(folder: str) -> None:
    """Write a tiny DETA."""
    backbone = transformers.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 12, 16, 20],
        depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
    )
    config = transformers.DetaConfig(
        backbone_config=backbone,
        num_queries=8,
        encoder_layers=1,
        encoder_ffn_dim=32,
        encoder_attention_heads=4,
        decoder_layers=1,
        decoder_ffn_dim=32,
        decoder_attention_heads=4,
        d_model=32,
        num_feature_levels=4,
        encoder_n_points=2,
        decoder_n_points=2,
        two_stage_num_proposals=8,
        num_labels=3,
    )
    transformers.DetaForObjectDetection(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a loaded model, and of its output as a dict, or the exception."""
    try:
        model = transformers.AutoModelForObjectDetection.from_pretrained(folder).eval()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            out = model(pixel_values=torch.rand(1, 3, 256, 256, generator=generator))
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}"[:80]
    return [list(out.logits.shape), sorted(out.keys())]
