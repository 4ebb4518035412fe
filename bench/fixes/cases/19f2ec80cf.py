"""torch.jit.trace takes a model in training mode that attends with SDPA."""

import torch
import transformers
from sizes import TEXT
from tokens import NAMED, tokenizer_of

CASE = {
    "before": "4.48.1",
    "after": "4.48.2",
    "symptom": "torch.jit.trace of a Llama in training mode raises TypeError: is_causal is a tensor",
    "failure": "'is_causal' must be bool",
    "says": (r"is_causal.*must be bool", r"jit\.trace"),
    "source": ("sdpa_attention_forward", "sdpa_attention.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama with its tokenizer."""
    words = ["<pad>", "<s>", "</s>", "<unk>", "what", "is", "this"]
    tokenizer_of(words, **NAMED).save_pretrained(folder)
    config = transformers.LlamaConfig(**TEXT, max_position_embeddings=64, pad_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a traced model."""
    model = transformers.LlamaForCausalLM.from_pretrained(
        folder, attn_implementation="sdpa", torchscript=True, use_cache=False
    ).train()
    ids = torch.arange(3, 9)[None]
    traced = torch.jit.trace(model, (ids,), check_trace=False)
    return list(traced(ids)[0].shape)
