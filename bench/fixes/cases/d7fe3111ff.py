"""The positions of patches in Idefics3 have the type of the pixels."""

import torch
import transformers
from sizes import TEXT_128, TOWER

CASE = {
    "symptom": "in bfloat16, Idefics3 gives the patches of an image other positions",
    "signals": ("logits", "hidden_states", "image_hidden_states", "outputs"),
    "says": (r"Idefics3VisionEmbeddings",),
    "source": ("Idefics3VisionEmbeddings", "modeling_idefics3.py"),
}


def make(folder: str) -> None:
    """Write a tiny Idefics3 in bfloat16."""
    text = {"model_type": "llama", **TEXT_128, "pad_token_id": 0}
    vision = {**TOWER, "image_size": 48, "patch_size": 4, "initializer_range": 0.3}
    config = transformers.Idefics3Config(
        text_config=text, vision_config=vision, image_token_id=120, scale_factor=2, pad_token_id=0
    )
    model = transformers.Idefics3ForConditionalGeneration(config).to(torch.bfloat16)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the positions of the patches of an image."""
    model = transformers.Idefics3ForConditionalGeneration.from_pretrained(
        folder, torch_dtype="auto"
    ).eval()
    tower, seen = model.model.vision_model, []
    tower.embeddings.position_embedding.register_forward_pre_hook(
        lambda _module, arguments: seen.append(arguments[0])
    )
    pixels = torch.zeros(1, 3, 48, 48, dtype=torch.bfloat16)
    try:
        with torch.no_grad():
            tower(pixels, patch_attention_mask=torch.ones(1, 12, 12, dtype=torch.bool))
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return {"positions": seen[0][0, :12].tolist()}
