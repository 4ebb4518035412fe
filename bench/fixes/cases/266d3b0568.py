"""RT-DETR computes its loss when the auxiliary loss is switched off."""

import numpy as np
import torch
import transformers
from PIL import Image
from sizes import BART

CASE = {
    "packages": ("scipy",),
    "symptom": "RT-DETR with auxiliary_loss false raises UnboundLocalError as soon as it is given labels",
    "failure": "auxiliary_outputs",
    "says": (r"UnboundLocalError", r"'auxiliary_outputs'"),
    "source": ("RTDetrForObjectDetectionLoss", "loss_rt_detr.py"),
}


def make(folder: str) -> None:
    """Write a tiny RT-DETR with its image processor."""
    transformers.RTDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
        out_indices=[2, 3, 4],
    )
    config = transformers.RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[16, 24, 32],
        **BART,
        num_queries=10,
        decoder_in_channels=[32, 32, 32],
        decoder_layers=2,
        num_labels=3,
        auxiliary_loss=False,
    )
    transformers.RTDetrForObjectDetection(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the loss of an image with one box is finite, or the exception."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    model = transformers.RTDetrForObjectDetection.from_pretrained(folder).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    inputs = processor(images=Image.fromarray(pixels), return_tensors="pt")
    labels = [{"class_labels": torch.tensor([1]), "boxes": torch.tensor([[0.5, 0.5, 0.2, 0.2]])}]
    with torch.no_grad():
        loss = model(pixel_values=inputs["pixel_values"], labels=labels).loss
    return {"loss is finite": bool(loss.isfinite())}
