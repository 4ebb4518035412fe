"""JetMoe shifts its labels once."""

import torch
import transformers
from sizes import IDS
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "the loss of JetMoe is that of the token after the next: its labels are shifted twice",
    "area": "loss",
    "signals": ("loss", "gradients", "training", "outputs"),
    "says": (r"(?i)\bloss\b.*(differs|shift|labels)",),
    "source": ("JetMoeForCausalLM", "ForCausalLMLoss", "modeling_jetmoe.py", "loss"),
}


def make(folder: str) -> None:
    """Write a tiny JetMoe with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.JetMoeConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_key_value_heads=2,
        kv_channels=8,
        intermediate_size=24,
        max_position_embeddings=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        initializer_range=0.3,
        **IDS,
    )
    transformers.JetMoeForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the loss of a text, and that of its next tokens by the logits."""
    model = transformers.JetMoeForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([[1, 5, 6, 7, 8, 9, 10, 11]])
    with torch.no_grad():
        out = model(input_ids=ids, labels=ids)
    own = torch.nn.functional.cross_entropy(out.logits[0, :-1].float(), ids[0, 1:])
    return {"loss": round(out.loss.item(), 3), "of the next tokens": round(own.item(), 3)}
