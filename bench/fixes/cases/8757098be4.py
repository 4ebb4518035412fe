"""GPT-2 divides its scores by the number of the layer under sdpa, where its config says so."""

import torch
import transformers
from sizes import GPT2, IDS
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "before": "5.3.0",
    "after": "5.4.0",
    "symptom": "GPT-2 ignores scale_attn_by_inverse_layer_idx under sdpa, which is the default: other logits",
    "signals": ("logits", "hidden_states", "greedy", "outputs", "decode"),
    "says": (r"scale_attn_by_inverse_layer_idx", r"scale_attn_weights"),
    "source": ("GPT2Attention", "modeling_gpt2.py"),
}


def make(folder: str) -> None:
    """Write a tiny GPT-2 that scales by the number of the layer, and its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.GPT2Config(**GPT2, scale_attn_by_inverse_layer_idx=True, **IDS)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether sdpa gives the logits of eager attention, up to rounding."""
    ids = torch.arange(3, 15)[None]
    logits = []
    for name in ("sdpa", "eager"):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=name)
        with torch.no_grad():
            logits.append(model.eval()(ids).logits)
    return bool(torch.allclose(*logits, atol=1e-3))
