"""What a checkpoint of LLaVA lacks is initialised by the part that it belongs to."""

import pathlib

import torch
import transformers
from safetensors.torch import load_file, save_file
from sizes import SMALL, TEXT_128

CASE = {
    "symptom": "norms of an image tower that a LLaVA checkpoint lacks are not initialised",
    "area": "loading and saving",
    "findings": ("SB302",),
    "says": (
        r"_init_weights",
        r"uninitiali[sz]ed.*vision_tower",
        r"vision_tower.*uninitiali[sz]ed",
    ),
    "source": ("_init_weights", "initialize_weights", "smart_apply"),
}


def make(folder: str) -> None:
    """Write a tiny LLaVA without the tensors of its image tower."""
    text = {"model_type": "llama", **TEXT_128}
    vision = {
        "model_type": "clip_vision_model",
        **SMALL,
        "image_size": 16,
        "patch_size": 8,
        "projection_dim": 16,
    }
    config = transformers.LlavaConfig(text_config=text, vision_config=vision, image_token_index=120)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)
    path = pathlib.Path(folder, "model.safetensors")
    tensors = {name: x for name, x in load_file(path).items() if "vision_tower" not in name}
    save_file(tensors, path, {"format": "pt"})


def observe(folder: str) -> object:
    """Return whether the tower's norms have the weights of a new norm, and the spread of its layers."""
    model = transformers.LlavaForConditionalGeneration.from_pretrained(folder)
    tower = next(module for name, module in model.named_modules() if name.endswith("vision_tower"))
    norms = [module.weight for module in tower.modules() if isinstance(module, torch.nn.LayerNorm)]
    layers = [module.weight for module in tower.modules() if isinstance(module, torch.nn.Linear)]
    return {
        "norms are ones": all(bool((weight == 1).all()) for weight in norms),
        "layers have the spread of the text model": all(float(w.std()) > 0.25 for w in layers),
    }
