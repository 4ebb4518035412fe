"""CLIP's image encoder with a projection is saved with the names of its weights."""

import pathlib

import transformers
from safetensors import safe_open

CASE = {
    "before": "5.10.1",
    "after": "5.10.2",
    "symptom": "CLIPVisionModelWithProjection is saved with vision_model.visual_projection, which other releases do not find",
    "signals": ("weights", "parameters", "image_embeds"),
    "says": (r"vision_model\.visual_projection", r"\bvisual_projection\b"),
    "source": ("conversion_mapping.py", "core_model_loading.py", "visual_projection"),
    "made": "4.57.6",
}


def make(folder: str) -> None:
    """Write a tiny one."""
    config = transformers.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        projection_dim=16,
        image_size=16,
        patch_size=4,
    )
    transformers.CLIPVisionModelWithProjection(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return under which names a loaded projection is saved."""
    model = transformers.CLIPVisionModelWithProjection.from_pretrained(folder)
    model.save_pretrained(folder)
    with safe_open(pathlib.Path(folder, "model.safetensors"), "pt") as file:
        return [name for name in file.keys() if "projection" in name]  # noqa: SIM118
