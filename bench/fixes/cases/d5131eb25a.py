"""A forward of Gemma 3n in training mode does not overwrite its correction coefficients."""

import torch
import transformers
from sizes import GEMMA_IDS
from tokens import tokenizer_of

CASE = {
    "symptom": "a training forward of Gemma 3n clips correction_coefs in place; export calls it mutated",
    "signals": ("weights", "gradients"),
    "findings": ("SB842",),
    "says": (r"correction_coefs", r"is mutated in the forward"),
    "source": ("Gemma3nTextAltUp", "correct", "modeling_gemma3n.py"),
}
CLIP = 0.2


def make(folder: str) -> None:
    """Write a tiny Gemma 3n for text, some of whose coefficients are to be clipped."""
    words = ["<pad>", "<eos>", "<bos>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", "the", "is"]
    tokenizer_of(
        words, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = transformers.Gemma3nTextConfig(
        vocab_size=64,
        vocab_size_per_layer_input=64,
        hidden_size=32,
        hidden_size_per_layer_input=16,
        intermediate_size=48,
        num_hidden_layers=4,
        num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=16,
        laurel_rank=8,
        altup_num_inputs=2,
        altup_coef_clip=CLIP,
        initializer_range=0.3,
        **GEMMA_IDS,
    )
    transformers.Gemma3nForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether a training forward leaves the coefficients of the checkpoint as they are."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).train()
    coefficients = {
        name: weight.detach().clone()
        for name, weight in model.named_parameters()
        if "correction_coefs" in name
    }
    ids = torch.tensor([[2, 5, 6, 7, 8, 9]])
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    weights = dict(model.named_parameters())
    return {
        "clipped in place": [
            name for name, old in coefficients.items() if not torch.equal(weights[name], old)
        ],
        "coefficients without a gradient": sum(
            int((weights[name].grad == 0).sum()) for name in coefficients
        ),
    }
