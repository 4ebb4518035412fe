"""ShieldGemma 2 ties its head as its text says, where its config says nothing."""

import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from sizes import SMALL, TEXT

CASE = {
    "symptom": "the head of a loaded ShieldGemma 2 is not tied to its embeddings: random weights, other probabilities",
    "signals": ("weights", "logits", "outputs", "probabilities"),
    "says": (r"lm_head\.weight", r"tie_word_embeddings"),
    "source": (
        "lm_head",
        "tie_word_embeddings",
        "ShieldGemma2Config",
        "configuration_shieldgemma2.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny ShieldGemma 2 whose config names the tie in its text alone, as the published one does."""
    config = transformers.ShieldGemma2Config(
        text_config={
            **TEXT,
            "head_dim": 8,
            "max_position_embeddings": 64,
            "tie_word_embeddings": True,
        },
        vision_config={**SMALL, "image_size": 28, "patch_size": 7},
        mm_tokens_per_image=4,
        boi_token_index=60,
        eoi_token_index=61,
        image_token_index=62,
        yes_token_index=5,
        no_token_index=6,
    )
    transformers.ShieldGemma2ForImageClassification(config).save_pretrained(folder)
    weights = Path(folder, "model.safetensors")
    kept = {name: tensor for name, tensor in load_file(weights).items() if "lm_head" not in name}
    save_file(kept, weights, {"format": "pt"})
    path = Path(folder, "config.json")
    values = json.loads(path.read_text("utf-8"))
    values.pop("tie_word_embeddings", None)
    path.write_text(json.dumps(values, indent=2), "utf-8")


def observe(folder: str) -> object:
    """Return what is missing of the file, whether the head is tied, and a sum of the head's weights."""
    torch.manual_seed(1)
    model, info = transformers.ShieldGemma2ForImageClassification.from_pretrained(
        folder, output_loading_info=True
    )
    head = model.model.lm_head.weight
    return {
        "missing": sorted(info["missing_keys"]),
        "tied": head is model.model.model.language_model.embed_tokens.weight,
        "head": round(head.double().abs().sum().item(), 3),
    }
