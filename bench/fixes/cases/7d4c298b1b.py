"""The fast image processor of Glm46V counts patches."""

from sizes import TOWER
from transformers import (
    AutoImageProcessor,
    Glm46VConfig,
    Glm46VForConditionalGeneration,
    Glm46VImageProcessorFast,
)

CASE = {
    "symptom": "Glm46VImageProcessorFast has no get_number_of_image_patches",
    "failure": "get_number_of_image_patches",
    "says": ("get_number_of_image_patches",),
    "source": ("get_number_of_image_patches", "image_processing_glm46v_fast.py"),
    "packages": ("torchvision",),
}


def make(folder: str) -> None:
    """Write the artefact."""
    text = {
        "vocab_size": 64,
        **TOWER,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [1, 1, 2],
        },
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "out_hidden_size": 32,
        "image_size": 28,
    }
    config = Glm46VConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=60,
        video_token_id=61,
        image_start_token_id=58,
        image_end_token_id=59,
        video_start_token_id=56,
        video_end_token_id=57,
    )
    Glm46VForConditionalGeneration(config).save_pretrained(folder)
    Glm46VImageProcessorFast().save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    processor = AutoImageProcessor.from_pretrained(folder)
    return {"patches": processor.get_number_of_image_patches(112, 168, {})}
