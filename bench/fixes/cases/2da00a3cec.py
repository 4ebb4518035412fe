"""An image processor on Pillow is there without torchvision."""

import numpy as np
import transformers
from PIL import Image

CASE = {
    "made": "5.5.0",
    "symptom": "AutoProcessor and the pipeline of a BEiT raise without torchvision: no processor is recognized",
    "area": "processor",
    "failure": "Unrecognized ",
    "says": (
        r"Unrecognized (image processor|processing class)",
        r"BeitImageProcessor(Pil)? requires the Torchvision library",
    ),
    "source": ("BeitImageProcessorPil", "BeitImageProcessor", "image_processing_pil_beit.py"),
}


def make(folder: str) -> None:
    """Write a tiny BEiT with its image processor."""
    config = transformers.BeitConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        initializer_range=0.3,
        out_indices=[0, 1, 2, 3],
    )
    transformers.BeitForImageClassification(config).save_pretrained(folder)
    size = {"height": 32, "width": 32}
    transformers.BeitImageProcessorPil(size=size, crop_size=size).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what comes of the processor and of the pipeline, in an environment without torchvision."""
    pixels = (np.arange(40 * 40 * 3) % 256).astype(np.uint8).reshape(40, 40, 3)
    image = Image.fromarray(pixels)
    seen = {}
    try:
        processor = transformers.AutoProcessor.from_pretrained(folder)
        seen["processor"] = list(processor(images=image, return_tensors="pt")["pixel_values"].shape)
    except Exception as error:  # noqa: BLE001  what a user sees
        seen["processor"] = f"{type(error).__name__}: {str(error)[:40]}"
    try:
        labels = transformers.pipeline("image-classification", model=folder)(image)
        seen["pipeline"] = sorted(label["label"] for label in labels)
    except Exception as error:  # noqa: BLE001  what a user sees
        seen["pipeline"] = f"{type(error).__name__}: {str(error)[:40]}"
    return seen
