"""BEiT reads the former name of the layers that its segmentation takes."""

import json
from pathlib import Path

import torch
import transformers
from sizes import SMALL

CASE = {
    "before": "5.1.0",
    "after": "5.2.0",
    "made": "5.2.0",
    "symptom": "a BEiT for segmentation with segmentation_indices in its config is not loaded: ValueError for out_indices",
    "failure": "out_indices",
    "says": (r"segmentation_indices", r"out_indices"),
    "source": ("BeitConfig", "configuration_beit.py", "BeitForSemanticSegmentation"),
}


def make(folder: str) -> None:
    """Write a tiny BEiT with the config of published checkpoints."""
    config = transformers.BeitConfig(
        **(SMALL | {"num_hidden_layers": 4}),
        image_size=32,
        patch_size=8,
        vocab_size=64,
        num_labels=3,
        initializer_range=0.3,
        use_mean_pooling=True,
        out_indices=[1, 2, 3, 4],
        pool_scales=[1, 2],
        auxiliary_channels=16,
    )
    transformers.BeitForSemanticSegmentation(config).save_pretrained(folder)
    size = {"height": 32, "width": 32}
    transformers.BeitImageProcessor(size=size, crop_size=size).save_pretrained(folder)
    path = Path(folder, "config.json")
    values = json.loads(path.read_text("utf-8"))
    values["segmentation_indices"] = values.pop("out_indices")
    values.pop("out_features", None)
    path.write_text(json.dumps(values, indent=2), "utf-8")


def observe(folder: str) -> object:
    """Return the shape of the logits of an image, or the exception."""
    model = transformers.BeitForSemanticSegmentation.from_pretrained(folder).eval()
    with torch.no_grad():
        return [*model(pixel_values=torch.zeros(1, 3, 32, 32)).logits.shape]
