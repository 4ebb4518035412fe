"""T5 1.1 does not scale what its decoder gives."""

import torch
import transformers
from saved import edit
from sizes import T5

CASE = {
    "made": "5.1.0",
    "symptom": "the logits of T5 1.1 are scaled as those of the first T5",
    "signals": ("logits", "outputs", "decode", "loss"),
    "says": (r"scale_decoder_outputs",),
    "source": ("T5Config", "configuration_t5.py", "scale_decoder_outputs"),
}


def make(folder: str) -> None:
    """Write a tiny T5 1.1 with the config of a published one: gated, with a head of its own."""
    config = transformers.T5Config(
        vocab_size=64,
        **T5,
        num_layers=2,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=0,
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    edit(folder, drop=["scale_decoder_outputs"], tie_word_embeddings=False)


def observe(folder: str) -> object:
    """Return whether the logits are scaled, and how large they are."""
    model = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.arange(4, 12)[None]
    with torch.no_grad():
        logits = model(input_ids=ids, decoder_input_ids=ids).logits
    return {"scaled": model.config.scale_decoder_outputs, "size": round(logits.std().item(), 4)}
