"""The router logits of a mixture of experts are logits, and no probabilities."""

import torch
import transformers
from sizes import TEXT
from tokens import NAMED, tokenizer_of

CASE = {
    "symptom": "router_logits of Mixtral are probabilities, and the auxiliary loss is made of them",
    "signals": ("outputs", "router_logits", "loss", "gradients"),
    "findings": ("SB912",),
    "says": (r"router_logits", r"aux_loss", r"TopKRouter"),
    "source": ("MixtralTopKRouter", "modeling_mixtral.py"),
}


def make(folder: str) -> None:
    """Write a tiny Mixtral with its tokenizer; it returns the logits of its routers."""
    words = ["<pad>", "<s>", "</s>", "<unk>", "what", "is", "this"]
    tokenizer_of(words, **NAMED).save_pretrained(folder)
    config = transformers.MixtralConfig(
        **TEXT,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        output_router_logits=True,
        pad_token_id=0,
    )
    transformers.MixtralForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the router logits of each token add up to one, and the auxiliary loss."""
    model = transformers.MixtralForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        outputs = model(torch.arange(3, 11)[None])
    sums = torch.cat(outputs.router_logits).float().sum(-1)
    return {
        "sums are one": bool((sums - 1).abs().max() < 1e-4),
        "auxiliary loss": round(float(outputs.aux_loss), 3),
    }
