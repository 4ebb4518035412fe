"""The image processor of Kimi K2.5 does not swap the height and the width of an image."""

import numpy as np
import transformers
from PIL import Image
from sizes import DEEPSEEK, QWEN_IDS, TOWER

CASE = {
    "made": "5.15.0",
    "symptom": "Kimi K2.5 squeezes every image that is not square into its transposed shape",
    "packages": ("torchvision",),
    "findings": ("SB833", "SB835", "SB839"),
    "signals": ("pixel_values", "image_grid_thw"),
    "says": (r"image_grid_thw", r"pixel_values"),
    "source": ("navit_resize", "Kimi_K25ImageProcessor", "image_processing_kimi_k25.py"),
}


def make(folder: str) -> None:
    """Write a tiny Kimi K2.5 with its image processor."""
    text = {
        "model_type": "deepseek_v3",
        "vocab_size": 128,
        "hidden_size": 32,
        "intermediate_size": 48,
        **DEEPSEEK,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "n_group": 2,
        "topk_group": 1,
    }
    vision = {"patch_size": 4, "pos_emb_height": 8, "pos_emb_width": 8, **TOWER}
    config = transformers.Kimi_K25Config(
        text_config=text,
        vision_config=vision,
        projection_hidden_size=32,
        image_token_id=120,
        **QWEN_IDS,
        tie_word_embeddings=False,
    )
    transformers.Kimi_K25ForConditionalGeneration(config).save_pretrained(folder)
    transformers.Kimi_K25ImageProcessor(
        size={"max_height": 16, "max_width": 16}, patch_size=4, max_patches=64
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the grid of patches of an image that is 40 high and 16 wide."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    pixels = np.random.default_rng(0).integers(0, 255, (40, 16, 3), dtype=np.uint8)
    output = processor(images=Image.fromarray(pixels), return_tensors="pt")
    return {"frames, rows, columns": output["image_grid_thw"].tolist()}
