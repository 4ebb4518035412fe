"""Mamba 2 ties its head to its embeddings where its config says so."""

import torch
import transformers
from sizes import IDS
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "made": "5.0.0",
    "symptom": "a Mamba 2 with tied embeddings is not saved, or its head is missing in the file",
    "area": "loading and saving",
    "signals": ("load", "weights", "logits"),
    "findings": ("SB304", "SB404", "SB206"),
    "says": (r"(?i)shared tensors", r"lm_head\.weight", r"_tied_weights_keys"),
    "source": ("Mamba2ForCausalLM", "modeling_mamba2.py", "lm_head"),
}


def make(folder: str) -> None:
    """Write a tiny Mamba 2 with tied embeddings, and its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.Mamba2Config(
        num_heads=8,
        head_dim=8,
        vocab_size=64,
        hidden_size=32,
        state_size=8,
        num_hidden_layers=2,
        n_groups=2,
        chunk_size=8,
        initializer_range=0.3,
        tie_word_embeddings=True,
        **IDS,
    )
    transformers.Mamba2ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the loaded model is tied and what comes of saving it."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tied = model.lm_head.weight is model.backbone.embeddings.weight
    try:
        model.save_pretrained(f"{folder}/again")
        again = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/again")
        same = torch.equal(again.lm_head.weight, model.lm_head.weight)
    except RuntimeError as error:
        same = f"RuntimeError: {error}"[:70]
    return {"tied": tied, "saved and loaded": same}
