"""VitMatte's image processor puts the trimap behind the channels of an image with its channels first."""

import numpy as np
import transformers

CASE = {
    "symptom": "VitMatte's image processor raises for an image with its channels first",
    "area": "processor",
    "findings": ("SB836",),
    "failure": "all the input array dimensions",
    "says": (r"channels first.*raises", r"all the input array dimensions"),
    "source": ("VitMatteImageProcessor", "image_processing_vitmatte.py"),
}


def make(folder: str) -> None:
    """Write a tiny VitMatte with its image processor."""
    backbone = transformers.VitDetConfig(
        num_channels=4,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=64,
        pretrain_image_size=64,
        patch_size=16,
        out_features=["stage2"],
    )
    config = transformers.VitMatteConfig(
        backbone_config=backbone,
        hidden_size=32,
        convstream_hidden_sizes=[8, 16, 24],
        fusion_hidden_sizes=[32, 16, 12, 8],
    )
    transformers.VitMatteForImageMatting(config).save_pretrained(folder)
    transformers.VitMatteImageProcessor(size_divisibility=32).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the pixel values of an image with its channels last and first."""
    processor = transformers.VitMatteImageProcessor.from_pretrained(folder)
    generator = np.random.default_rng(0)
    image = generator.integers(0, 255, (64, 96, 3), dtype=np.uint8)
    trimap = generator.integers(0, 255, (64, 96), dtype=np.uint8)
    return {
        "last": shape(processor, image, trimap),
        "first": shape(processor, image.transpose(2, 0, 1), trimap),
    }


def shape(processor: object, image: np.ndarray, trimap: np.ndarray) -> object:
    """Return the shape of the pixel values, or the exception."""
    try:
        return list(
            processor(images=image, trimaps=trimap, return_tensors="pt")["pixel_values"].shape
        )
    except ValueError as error:
        return f"ValueError: {error}"[:60]
