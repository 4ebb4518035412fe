"""set_encoder takes the modality image."""

import transformers
from sizes import SMALL, TEXT_128

CASE = {
    "symptom": "set_encoder(tower, modality='image') raises ValueError, though get_encoder takes it",
    "failure": "Unnrecognized modality",
    "says": (r"set_encoder",),
    "source": ("set_encoder",),
}


def make(folder: str) -> None:
    """Write a tiny LLaVA."""
    text = {"model_type": "llama", **TEXT_128}
    vision = {
        "model_type": "clip_vision_model",
        **SMALL,
        "image_size": 16,
        "patch_size": 8,
        "projection_dim": 16,
    }
    config = transformers.LlavaConfig(text_config=text, vision_config=vision, image_token_id=120)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the image tower can be replaced."""
    model = transformers.LlavaForConditionalGeneration.from_pretrained(folder)
    tower = transformers.CLIPVisionModel(model.config.vision_config)
    model.set_encoder(tower, modality="image")
    return {"replaced": model.get_encoder(modality="image") is tower}
