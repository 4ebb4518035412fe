"""AutoModelForMaskGeneration has SAM and SAM-HQ; the table was defined twice, and the second one won."""

import numpy as np
import sam
import transformers
from PIL import Image

CASE = {
    "symptom": "AutoModelForMaskGeneration does not know SAM: it raises ValueError",
    "area": "loading and saving",
    "packages": ("torchvision",),
    "failure": "Unrecognized configuration class",
    "says": (r"(?i)mask[-_ ]?generation",),
    "source": (
        "AutoModelForMaskGeneration",
        "MODEL_FOR_MASK_GENERATION_MAPPING",
        "modeling_auto.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny SAM with its processor."""
    sam.save_model(folder)
    transformers.SamProcessor(sam.image_processor()).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the classes that the auto class and the pipeline load, or the exceptions."""
    seen = {}
    try:
        model = transformers.AutoModelForMaskGeneration.from_pretrained(folder)
        seen["auto"] = type(model).__name__
    except ValueError as error:
        seen["auto"] = str(error)[:60]
    try:
        pipeline = transformers.pipeline("mask-generation", model=folder)
        image = Image.fromarray(np.zeros((32, 32, 3), np.uint8))
        seen["pipeline"] = type(pipeline(image, points_per_batch=4, points_per_crop=2)).__name__
    except Exception as error:  # noqa: BLE001  what a user sees
        seen["pipeline"] = f"{type(error).__name__}: {error}"[:80]
    return seen
