"""DBRX takes the probabilities of its router as they are.

https://github.com/huggingface/transformers/issues/39055
"""

import torch
import transformers

CASE = {
    "symptom": "the loss of balance of DBRX is that of probabilities that went through a second softmax",
    "signals": ("loss", "outputs"),
    "says": (r"aux_loss", r"load_balancing"),
    "source": ("load_balancing_loss_func", "modeling_dbrx.py"),
}


def make(folder: str) -> None:
    """Write a tiny DBRX."""
    config = transformers.DbrxConfig(
        vocab_size=64,
        d_model=32,
        n_heads=4,
        n_layers=2,
        max_seq_len=64,
        initializer_range=0.3,
        attn_config={"kv_n_heads": 2, "clip_qkv": 8},
        ffn_config={
            "ffn_hidden_size": 48,
            "moe_num_experts": 4,
            "moe_top_k": 2,
            "moe_jitter_eps": 0,
            "moe_loss_weight": 0.05,
            "ffn_act_fn": {"name": "silu"},
        },
        pad_token_id=0,
    )
    transformers.DbrxForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the loss of balance of a row."""
    model = transformers.DbrxForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        out = model(torch.arange(4, 16)[None], output_router_logits=True)
    return round(out.aux_loss.item(), 4)
