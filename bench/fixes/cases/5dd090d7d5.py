"""Arguments of from_pretrained that are attributes of an image processor are applied."""

from sizes import TOWER
from transformers import (
    AutoImageProcessor,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorFast,
)

CASE = {
    "symptom": "from_pretrained(folder, model_input_names=...) drops the argument in silence",
    "says": ("from_dict", "kwargs"),
    "source": ("from_dict", "image_processing_base.py"),
    "packages": ("torchvision",),
}


VIT = {**TOWER, "image_size": 16, "patch_size": 8}


def make(folder: str) -> None:
    """Write the artefact."""
    ViTForImageClassification(ViTConfig(**VIT)).save_pretrained(folder)
    ViTImageProcessorFast(size={"height": 16, "width": 16}).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    processor = AutoImageProcessor.from_pretrained(folder, model_input_names=["images"])
    return {"model_input_names": list(processor.model_input_names)}
