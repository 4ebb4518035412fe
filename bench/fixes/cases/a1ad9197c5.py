"""A fast image processor has its attributes for itself."""

import transformers
from saved import edit
from sizes import TOWER

CASE = {
    "packages": ("torchvision",),
    "symptom": "to change image_mean of one fast image processor changes it in all that are made later",
    "says": (r"image_mean",),
    "source": ("BaseImageProcessorFast", "image_processing_utils_fast.py"),
}


def make(folder: str) -> None:
    """Write a tiny SigLIP with a fast image processor whose file leaves out the mean, as short ones do."""
    transformers.SiglipImageProcessorFast(size={"height": 16, "width": 16}).save_pretrained(folder)
    edit(folder, "preprocessor_config.json", drop=["image_mean"])
    config = transformers.SiglipVisionConfig(**TOWER, image_size=16, patch_size=8)
    transformers.SiglipVisionModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the mean of a processor after that of another one is changed in place."""
    one, other = (
        transformers.AutoImageProcessor.from_pretrained(folder, use_fast=True) for _ in range(2)
    )
    one.image_mean[0] = 0.25
    return {"mean": other.image_mean}
