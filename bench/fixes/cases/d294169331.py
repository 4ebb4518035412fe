"""The router logits of a mixture of experts are logits, and no probabilities.

https://github.com/huggingface/transformers/pull/45131
"""

import json
import sys

import tokenizers
import torch
import transformers

CASE = {
    "before": "5.5.4",
    "after": "5.6.0",
    "made": "5.5.4",
    "symptom": "router_logits of Mixtral are probabilities, and the auxiliary loss is made of them",
    "area": "computation",
    "signals": ("outputs", "router_logits", "loss", "gradients"),
    "findings": ("SB912",),
    "says": (r"router_logits", r"aux_loss", r"TopKRouter"),
    "source": ("MixtralTopKRouter", "modeling_mixtral.py"),
}


def make(folder: str) -> None:
    """Write a tiny Mixtral with its tokenizer; it returns the logits of its routers."""
    torch.manual_seed(0)
    words = ["<pad>", "<s>", "</s>", "<unk>", "what", "is", "this"]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    ).save_pretrained(folder)
    config = transformers.MixtralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        initializer_range=0.3,
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


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
