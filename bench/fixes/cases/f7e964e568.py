"""ChineseCLIPModel.get_text_features works.

https://github.com/huggingface/transformers/pull/42351
"""

import json
import sys

import torch
from transformers import AutoModel, ChineseCLIPConfig, ChineseCLIPModel

CASE = {
    "before": "4.57.6",
    "after": "5.0.0",
    "made": "4.57.6",
    "symptom": "get_text_features raises, as the text model has no pooler",
    "area": "computation",
    "failure": "NoneType",
    "says": ("get_text_features",),
    "source": ("get_text_features", "modeling_chinese_clip.py"),
}


def make(folder: str) -> None:
    """Write the artefact."""
    torch.manual_seed(0)
    small = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    config = ChineseCLIPConfig(
        text_config=small | {"vocab_size": 64, "initializer_range": 0.3},
        vision_config=small | {"image_size": 16, "patch_size": 8},
        projection_dim=16,
    )
    ChineseCLIPModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    model = AutoModel.from_pretrained(folder)
    try:
        with torch.no_grad():
            out = model.get_text_features(input_ids=torch.arange(3, 12)[None])
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return {"features": list(getattr(out, "pooler_output", out).shape)}


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
