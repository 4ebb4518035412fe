"""ESM takes inputs_embeds."""

import torch
from sizes import SMALL
from transformers import AutoModelForMaskedLM, EsmConfig, EsmForMaskedLM

CASE = {
    "symptom": "a forward with inputs_embeds raises AttributeError",
    "failure": "unsqueeze",
    "findings": (),
    "says": ("inputs_embeds",),
    "source": ("EsmEmbeddings", "modeling_esm.py"),
}


def make(folder: str) -> None:
    """Write the artefact."""
    config = EsmConfig(
        vocab_size=33,
        **SMALL,
        pad_token_id=1,
        mask_token_id=32,
        token_dropout=True,
        position_embedding_type="rotary",
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    EsmForMaskedLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    model = AutoModelForMaskedLM.from_pretrained(folder)
    embeds = model.get_input_embeddings()(torch.arange(3, 12)[None])
    with torch.no_grad():
        return list(model(inputs_embeds=embeds).logits.shape)
