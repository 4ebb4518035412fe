"""Arguments of from_pretrained that are attributes of an image processor are applied.

https://github.com/huggingface/transformers/pull/44245
"""

from sizes import TOWER
from transformers import (
    AutoImageProcessor,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorFast,
)

CASE = {
    "before": "5.2.0",
    "after": "5.3.0",
    "symptom": "from_pretrained(folder, model_input_names=...) drops the argument in silence",
    "area": "processor",
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
