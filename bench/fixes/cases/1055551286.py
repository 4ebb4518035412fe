"""The image-segmentation pipeline takes an RF-DETR model."""

import numpy as np
import transformers
from PIL import Image

CASE = {
    "symptom": "pipeline('image-segmentation') of RF-DETR raises TypeError: overlap_mask_area_threshold",
    "area": "processor",
    "packages": ("torchvision",),
    "findings": ("SB836", "SB838", "SB932"),
    "failure": "overlap_mask_area_threshold",
    "says": (r"post_process_instance_segmentation", r"overlap_mask_area_threshold"),
    "source": ("post_process_instance_segmentation", "image_processing_rf_detr.py"),
}


def make(folder: str) -> None:
    """Write a tiny RF-DETR for instance segmentation with its image processor."""
    backbone = {
        "model_type": "rf_detr_dinov2",
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "patch_size": 16,
        "num_windows": 2,
        "out_features": ["stage2"],
    }
    config = transformers.RfDetrConfig(
        backbone_config=backbone,
        d_model=32,
        decoder_ffn_dim=48,
        decoder_layers=2,
        decoder_self_attention_heads=4,
        decoder_cross_attention_heads=4,
        decoder_n_points=2,
        num_queries=5,
        group_detr=2,
        intermediate_size=48,
        num_labels=4,
    )
    transformers.RfDetrForInstanceSegmentation(config).save_pretrained(folder)
    transformers.RfDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the type of what the pipeline gives for one image."""
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    pipeline = transformers.pipeline("image-segmentation", model=folder)
    return type(pipeline(Image.fromarray(pixels))).__name__
