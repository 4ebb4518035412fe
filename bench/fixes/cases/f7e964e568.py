"""ChineseCLIPModel.get_text_features works."""

import torch
from sizes import SMALL
from transformers import AutoModel, ChineseCLIPConfig, ChineseCLIPModel

CASE = {
    "symptom": "get_text_features raises, as the text model has no pooler",
    "failure": "NoneType",
    "says": ("get_text_features",),
    "source": ("get_text_features", "modeling_chinese_clip.py"),
}


def make(folder: str) -> None:
    """Write the artefact."""
    config = ChineseCLIPConfig(
        text_config=SMALL | {"vocab_size": 64, "initializer_range": 0.3},
        vision_config=SMALL | {"image_size": 16, "patch_size": 8},
        projection_dim=16,
    )
    ChineseCLIPModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    model = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        out = model.get_text_features(input_ids=torch.arange(3, 12)[None])
    return {"features": list(getattr(out, "pooler_output", out).shape)}
