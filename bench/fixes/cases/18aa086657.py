"""SAM 3's processor says which boxes of a batch are padding.

https://github.com/huggingface/transformers/issues/45059
"""

import numpy as np
import transformers
from PIL import Image
from sizes import IDS
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "packages": ("torchvision",),
    "symptom": "an image without boxes in a batch with boxes gets boxes of padding that the model takes for real ones",
    "says": (r"input_boxes_labels", r"input_boxes"),
    "source": ("Sam3Processor", "processing_sam3.py", "_generate_default_box_labels"),
}


def make(folder: str) -> None:
    """Write a tiny SAM 3 and its processor."""
    width = {"hidden_size": 32, "num_attention_heads": 4}
    layer = width | {"intermediate_size": 48}
    vision = {
        "fpn_hidden_size": 32,
        "scale_factors": [2.0, 1.0],
        "backbone_config": layer
        | {
            "num_hidden_layers": 2,
            "image_size": 56,
            "pretrain_image_size": 56,
            "patch_size": 14,
            "window_size": 2,
            "global_attn_indexes": [1],
        },
    }
    text = layer | {
        "vocab_size": 64,
        "num_hidden_layers": 2,
        "max_position_embeddings": 32,
        "projection_dim": 32,
        **IDS,
    }
    config = transformers.Sam3Config(
        vision_config=vision,
        text_config=text,
        geometry_encoder_config=layer | {"num_layers": 1, "roi_size": 2},
        detr_encoder_config=layer | {"num_layers": 1},
        detr_decoder_config=layer | {"num_layers": 1, "num_queries": 5},
        mask_decoder_config=width | {"num_upsampling_stages": 2},
    )
    transformers.Sam3Model(config).save_pretrained(folder)
    images = transformers.Sam3ImageProcessor(
        size={"height": 56, "width": 56}, mask_size={"height": 16, "width": 16}
    )
    words = tokenizer_of(WORDS, **NAMED, model_max_length=32)
    transformers.Sam3Processor(images, words, target_size=56).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what the processor gives for an image without a box beside one with a box."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    images = [Image.fromarray(np.zeros((56, 56, 3), dtype=np.uint8))] * 2
    inputs = processor(
        images=images,
        text=["cat", "dog"],
        input_boxes=[None, [[10, 10, 20, 20]]],
        return_tensors="pt",
    )
    return {key: value.tolist() for key, value in inputs.items() if "boxes" in key}
