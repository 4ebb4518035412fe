"""CamemBERT's head is tied to its embeddings, as its config says by default."""

from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from sizes import PLAIN_TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "the head of a loaded CamembertForMaskedLM is random, as it is not tied to the embeddings: other logits",
    "signals": ("weights", "logits", "outputs", "parameters"),
    "says": (r"lm_head\.decoder\.weight", r"tie_word_embeddings"),
    "source": (
        "lm_head.decoder",
        "tie_word_embeddings",
        "CamembertConfig",
        "configuration_camembert.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny CamemBERT without a weight of its head, as the published files have none, and its tokenizer."""
    special = {
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    tokenizer_of([*special.values(), *WORDS[len(NAMED) :]], **special).save_pretrained(folder)
    config = transformers.CamembertConfig(
        **PLAIN_TEXT,
        max_position_embeddings=66,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
    )
    transformers.CamembertForMaskedLM(config).save_pretrained(folder)
    weights = Path(folder, "model.safetensors")
    kept = {
        name: tensor
        for name, tensor in load_file(weights).items()
        if name not in {"lm_head.decoder.weight", "lm_head.decoder.bias"}
    }
    save_file(kept, weights, {"format": "pt"})


def observe(folder: str) -> object:
    """Return what is missing of the file and whether the head is tied."""
    torch.manual_seed(1)
    model, info = transformers.CamembertForMaskedLM.from_pretrained(
        folder, output_loading_info=True
    )
    head = model.get_output_embeddings().weight
    return {
        "missing": sorted(info["missing_keys"]),
        "tied": head is model.get_input_embeddings().weight,
    }
