"""JetMoe rotates heads of the size that its config states."""

import torch
import transformers

CASE = {
    "before": "4.56.1",
    "after": "4.56.2",
    "symptom": "JetMoe raises RuntimeError in every forward where kv_channels is not hidden_size / num_attention_heads",
    "signals": ("buffers", "hidden_states", "logits"),
    "findings": ("SB503",),
    "failure": "must match the size of tensor",
    "says": (r"inv_freq", r"head_dim"),
    "source": (
        "JetMoeRotaryEmbedding",
        "apply_rotary_pos_emb",
        "configuration_jetmoe.py",
        "modeling_jetmoe.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny JetMoe, whose heads are as wide as those of the published one: twice hidden_size by heads."""
    config = transformers.JetMoeConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_key_value_heads=2,
        kv_channels=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        initializer_range=0.3,
    )
    transformers.JetMoeForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of frequencies, and the shape of the logits."""
    model = transformers.JetMoeForCausalLM.from_pretrained(folder).eval()
    frequencies = [
        buffer.numel() for name, buffer in model.named_buffers() if name.endswith("inv_freq")
    ]
    try:
        with torch.no_grad():
            logits = model(torch.tensor([[5, 6, 7, 8]])).logits
    except RuntimeError as error:
        return [frequencies, f"RuntimeError: {error}"]
    return [frequencies, list(logits.shape)]
