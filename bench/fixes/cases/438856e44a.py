"""AFMoE takes rope_theta of a config.json that has no rope_parameters."""

import transformers
from saved import edit
from sizes import IDS, TEXT
from tokens import NAMED, tokenizer_of

CASE = {
    "symptom": "AFMoE with rope_theta beside the other settings rotates by 10000, not by its value",
    "signals": ("buffers", "logits", "hidden_states", "greedy"),
    "findings": ("SB503",),
    "says": (r"rope_theta", r"inv_freq"),
    "source": ("convert_rope_params_to_dict", "modeling_rope_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny AFMoE with its tokenizer; its config.json is of the form before 5.0."""
    words = ["<pad>", "<s>", "</s>", "<unk>", "what", "is", "this"]
    tokenizer_of(words, **NAMED).save_pretrained(folder)
    config = transformers.AfmoeConfig(
        **TEXT,
        moe_intermediate_size=16,
        num_dense_layers=1,
        head_dim=8,
        max_position_embeddings=64,
        num_experts=4,
        num_experts_per_tok=2,
        global_attn_every_n_layers=2,
        sliding_window=16,
        **IDS,
    )
    transformers.AfmoeForCausalLM(config).save_pretrained(folder)
    edit(folder, drop=["rope_parameters"], rope_theta=50000.0, rope_scaling=None)


def observe(folder: str) -> object:
    """Return the base and the second frequency of the rotary embedding."""
    model = transformers.AfmoeForCausalLM.from_pretrained(folder).eval()
    return {
        "rope_theta": model.config.rope_parameters["rope_theta"],
        "frequency": round(float(model.model.rotary_emb.inv_freq[1]), 5),
    }
