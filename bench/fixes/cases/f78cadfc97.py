"""The head of Pop2Piano is a tensor of its own and is not tied to the embeddings."""

import torch
import transformers
from sizes import T5

CASE = {
    "symptom": "a Pop2Piano that 4.57 saved with tied weights gets a random head in 5.0",
    "area": "loading and saving",
    "signals": ("weights", "logits", "greedy"),
    "findings": ("SB304", "SB404"),
    "says": (r"lm_head",),
    "source": ("Pop2PianoForConditionalGeneration", "modeling_pop2piano.py"),
}


def make(folder: str) -> None:
    """Write a tiny Pop2Piano."""
    config = transformers.Pop2PianoConfig(
        vocab_size=128,
        composer_vocab_size=4,
        **T5,
        num_layers=2,
        num_decoder_layers=2,
        relative_attention_num_buckets=8,
        decoder_start_token_id=0,
    )
    model = transformers.Pop2PianoForConditionalGeneration(config)
    composers = {"composer1": 100, "composer2": 101, "composer3": 102, "composer4": 103}
    model.generation_config.composer_to_feature_token = composers
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the head is the embeddings, and the names of the tensors that were missing."""
    model, report = transformers.Pop2PianoForConditionalGeneration.from_pretrained(
        folder, output_loading_info=True
    )
    return {
        "tied": bool(torch.equal(model.lm_head.weight, model.shared.weight)),
        "missing": sorted(report["missing_keys"]),
    }
