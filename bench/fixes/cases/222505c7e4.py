"""Grounding DINO learns which words of a text name an object."""

import torch
import transformers
from sizes import BART

CASE = {
    "symptom": "training Grounding DINO: its loss is nan, as labels are taken for places in the text and masked scores take part",
    "area": "loss",
    "packages": ("torchvision", "scipy"),
    "signals": ("loss", "grads"),
    "findings": ("SB840", "SB841", "SB842"),
    "says": (r"GroundingDino\\w*Loss", r"loss_grounding_dino"),
    "source": (
        "GroundingDinoForObjectDetection",
        "GroundingDinoForObjectDetectionLoss",
        "GroundingDinoImageLoss",
        "loss_grounding_dino.py",
        "modeling_grounding_dino.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Grounding DINO."""
    backbone = transformers.SwinConfig(
        window_size=7,
        embed_dim=8,
        depths=[1, 1, 1, 1],
        num_heads=[1, 1, 1, 1],
        image_size=128,
        out_features=["stage2", "stage3", "stage4"],
        out_indices=[2, 3, 4],
    )
    text = {
        "model_type": "bert",
        "vocab_size": 1100,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 16,
    }
    config = transformers.GroundingDinoConfig(
        backbone_config=backbone,
        text_config=text,
        **BART,
        encoder_layers=1,
        decoder_layers=1,
        num_queries=4,
        num_labels=2,
        num_feature_levels=4,
        encoder_n_points=2,
        decoder_n_points=2,
        max_text_len=8,
        disable_custom_kernels=True,
        init_std=0.3,
    )
    transformers.GroundingDinoForObjectDetection(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the loss of two objects of a text that names two."""
    model = transformers.GroundingDinoForObjectDetection.from_pretrained(folder).eval()
    generator = torch.Generator().manual_seed(1)
    ids = torch.tensor([[101, 386, 1012, 114, 387, 1012, 102]])
    labels = [
        {
            "class_labels": torch.tensor([0, 1]),
            "boxes": torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.6, 0.6, 0.3, 0.3]]),
        }
    ]
    pixels = torch.rand(1, 3, 128, 128, generator=generator)
    with torch.no_grad():
        out = model(pixel_values=pixels, input_ids=ids, labels=labels)
    return {"loss": f"{float(out.loss):.2f}", "parts": sorted(out.loss_dict)}
