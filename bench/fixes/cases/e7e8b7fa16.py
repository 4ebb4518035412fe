"""Videos with a transparency layer become RGB."""

import numpy as np
import torch
from sizes import TOWER
from transformers import (
    AutoVideoProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionVideoProcessor,
)

CASE = {
    "symptom": "an opaque RGBA video keeps four channels",
    "signals": ("processor", "pixel_values_videos"),
    "says": ("convert_to_rgb", "RGBA", "channels?"),
    "source": ("convert_to_rgb", "video_processing_utils.py", "video_utils.py"),
    "packages": ("torchvision",),
}


def make(folder: str) -> None:
    """Write the artefact."""
    small = {**TOWER}
    config = LlavaOnevisionConfig(
        text_config=small | {"model_type": "qwen2", "vocab_size": 64, "num_key_value_heads": 2},
        vision_config=small
        | {"model_type": "siglip_vision_model", "image_size": 16, "patch_size": 8},
        image_token_index=60,
        video_token_index=61,
        image_grid_pinpoints=[[16, 16]],
    )
    LlavaOnevisionForConditionalGeneration(config).save_pretrained(folder)
    LlavaOnevisionVideoProcessor(
        size={"height": 16, "width": 16}, do_sample_frames=False
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    processor = AutoVideoProcessor.from_pretrained(folder)
    video = torch.from_numpy(
        np.arange(3 * 4 * 16 * 16, dtype=np.int64).reshape(3, 4, 16, 16) % 251
    ).to(torch.uint8)
    video[:, 3] = 255
    try:
        out = processor(
            [video], do_convert_rgb=True, input_data_format="channels_first", return_tensors="pt"
        )["pixel_values_videos"]
    except (RuntimeError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return list(out.shape)
