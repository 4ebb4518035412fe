"""A LongT5 whose checkpoint has its embeddings once is loaded with them everywhere."""

from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from sizes import T5

CASE = {
    "symptom": "encoder and decoder of a legacy LongT5 have random embeddings",
    "area": "loading and saving",
    "signals": ("load", "weights", "hidden_states", "logits"),
    "findings": ("SB304", "SB404", "SB206"),
    "says": (r"embed_tokens", r"tie_word_embeddings"),
    "source": ("LongT5PreTrainedModel", "modeling_longt5.py", "embed_tokens"),
}


def make(folder: str) -> None:
    """Write a tiny LongT5 as those of the hub are: embeddings once, tie_word_embeddings false."""
    config = transformers.LongT5Config(
        vocab_size=64,
        **T5,
        num_layers=2,
        local_radius=7,
        decoder_start_token_id=0,
        tie_word_embeddings=False,
        initializer_factor=2.0,
    )
    transformers.LongT5ForConditionalGeneration(config).save_pretrained(folder)
    path = Path(folder, "model.safetensors")
    weights = load_file(path)
    for part in ("encoder", "decoder"):
        weights.pop(f"{part}.embed_tokens.weight", None)
    save_file(weights, path, metadata={"format": "pt"})


def observe(folder: str) -> object:
    """Return whether encoder and decoder have the stored embeddings."""
    torch.manual_seed(1)
    model = transformers.LongT5ForConditionalGeneration.from_pretrained(folder)
    stored = load_file(f"{folder}/model.safetensors")["shared.weight"]
    return {
        part: torch.equal(getattr(model, part).embed_tokens.weight, stored)
        for part in ("encoder", "decoder")
    }
