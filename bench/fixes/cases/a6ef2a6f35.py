"""UMT5EncoderModel shares its embeddings whatever the config says of tying."""

import torch
from safetensors.torch import load_file, save_file
from saved import edit
from sizes import T5
from transformers import UMT5Config, UMT5EncoderModel

CASE = {
    "symptom": "encoder.embed_tokens of a checkpoint with tie_word_embeddings false has random values",
    "signals": ("load", "hidden_states", "last_hidden_state"),
    "findings": ("SB304", "SB404", "SB206"),
    "says": ("embed_tokens", "tie_word_embeddings"),
    "source": ("UMT5Config", "configuration_umt5.py", "embed_tokens"),
}


def make(folder: str) -> None:
    """Write the artefact."""
    config = UMT5Config(vocab_size=64, **T5, num_layers=2, tie_word_embeddings=False)
    UMT5EncoderModel(config).save_pretrained(folder)
    path = f"{folder}/model.safetensors"
    weights = load_file(path)
    shared = weights.pop("encoder.embed_tokens.weight", None)
    weights.setdefault("shared.weight", shared)
    save_file(weights, path, metadata={"format": "pt"})
    # the checkpoints of the hub say false
    edit(folder, tie_word_embeddings=False)


def observe(folder: str) -> object:
    """Return what a user sees."""
    torch.manual_seed(1)
    model = UMT5EncoderModel.from_pretrained(folder)
    same = torch.equal(model.shared.weight, model.encoder.embed_tokens.weight)
    stored = load_file(f"{folder}/model.safetensors")["shared.weight"]
    return {
        "encoder has the stored embeddings": bool(
            torch.equal(model.encoder.embed_tokens.weight, stored)
        ),
        "same": same,
    }
