"""The matcher of Mask2Former weighs classes as the config says."""

import torch
import transformers

CASE = {
    "packages": ("scipy",),
    "symptom": "Mask2Former matches masks in training with a weight of 1 for their classes, whatever class_weight says",
    "signals": ("loss", "train", "train_loss", "gradients"),
    "says": (r"Mask2FormerLoss", r"Mask2FormerHungarianMatcher", r"cost_class", r"\bloss\b"),
    "source": ("Mask2FormerLoss", "Mask2FormerHungarianMatcher", "modeling_mask2former.py"),
}


def make(folder: str) -> None:
    """Write a tiny Mask2Former in which the class of a mask counts twenty times."""
    backbone = transformers.SwinConfig(
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[1, 1, 1, 1],
        num_heads=[2, 2, 2, 2],
        window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = transformers.Mask2FormerConfig(
        backbone_config=backbone,
        hidden_dim=32,
        feature_size=32,
        mask_feature_size=32,
        encoder_feedforward_dim=32,
        dim_feedforward=32,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=2,
        num_queries=8,
        num_labels=4,
        class_weight=20.0,
        init_std=0.3,
        train_num_points=64,
    )
    transformers.Mask2FormerForUniversalSegmentation(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the loss of an image with three masks."""
    model = transformers.Mask2FormerForUniversalSegmentation.from_pretrained(folder).eval()
    torch.manual_seed(0)
    pixels = torch.randn(1, 3, 32, 32)
    masks = (torch.rand(3, 32, 32) > 0.5).float()
    with torch.no_grad():
        loss = model(pixels, mask_labels=[masks], class_labels=[torch.tensor([0, 1, 2])]).loss
    return round(loss.item(), 2)
