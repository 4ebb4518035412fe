"""Llama 4 attends within chunks, with eager attention and in batches too."""

import torch
import transformers
from sizes import IDS, TEXT

CASE = {
    "before": "4.51.1",
    "after": "4.51.2",
    "packages": ("accelerate",),
    "symptom": "Llama 4 raises RuntimeError for a batch of texts longer than a chunk, and with eager attention for any",
    "signals": ("logits", "hidden_states", "outputs", "decode", "greedy"),
    "failure": "must match the size of tensor",
    "says": (r"_update_causal_mask", r"create_chunked_attention_mask", r"attention_chunk_size"),
    "source": (
        "_update_causal_mask",
        "create_chunked_attention_mask",
        "Llama4TextModel",
        "modeling_llama4.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Llama 4 of text alone whose chunks have eight tokens, in bfloat16."""
    config = transformers.Llama4TextConfig(
        **TEXT,
        head_dim=8,
        intermediate_size_mlp=48,
        num_local_experts=2,
        attention_chunk_size=8,
        **IDS,
    )
    transformers.Llama4ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shapes of the logits of two texts of twelve tokens, or the exception, for both attentions."""
    seen = {}
    for attention in ("eager", "sdpa"):
        model = transformers.Llama4ForCausalLM.from_pretrained(
            folder, attn_implementation=attention, torch_dtype="auto"
        ).eval()
        ids = torch.arange(3, 27).reshape(2, 12)
        try:
            with torch.no_grad():
                logits = model(ids, attention_mask=torch.ones_like(ids)).logits
            seen[attention] = str(list(logits.shape))
        except RuntimeError as error:
            seen[attention] = f"RuntimeError: {error}"[:100]
    return seen
