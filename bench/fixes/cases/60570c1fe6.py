"""The fast image processor of HunYuan-VL gives patches in the order of the slow one."""

import numpy as np
import transformers
from PIL import Image
from sizes import IDS

CASE = {
    "packages": ("torchvision",),
    "symptom": "with torchvision, HunYuan-VL gets the patches of an image in another order than with PIL",
    "area": "processor",
    "findings": ("SB833", "SB839"),
    "says": (r"HunYuanVLImageProcessor\b.*pixel_values",),
    "source": ("HunYuanVLImageProcessor", "image_processing_hunyuan_vl.py"),
}


def make(folder: str) -> None:
    """Write a tiny HunYuan-VL with its image processor."""
    text = {
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        **IDS,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [2, 2, 2, 2],
        },
    }
    vision = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "out_hidden_size": 64,
        "text_hidden_size": 64,
        "max_image_size": 128,
        "min_image_size": 64,
        "anyres_vit_max_image_size": 128,
        "max_vit_seq_len": 64,
    }
    config = transformers.HunYuanVLConfig(
        text_config=text, vision_config=vision, image_token_id=120
    )
    transformers.HunYuanVLForConditionalGeneration(config).save_pretrained(folder)
    transformers.HunYuanVLImageProcessor(
        size={"shortest_edge": 32 * 32, "longest_edge": 128 * 128}
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the order by brightness of the patches of an image whose patches get brighter."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    levels = np.arange(16, dtype=np.uint8).reshape(4, 4) * 16
    image = np.kron(levels, np.ones((16, 16), np.uint8))[..., None].repeat(3, axis=2)
    pixels = processor(images=[Image.fromarray(image)], return_tensors="pt")["pixel_values"]
    means = pixels.reshape(16, -1).mean(dim=1)
    return {"order of brightness": means.argsort().tolist()}
