"""HunYuan's rotary frequencies have their alpha when a checkpoint is loaded."""

import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "made": "5.1.0",
    "symptom": "a loaded HunYuan has rotary frequencies without the alpha of its config: other logits",
    "signals": ("inv_freq", "buffers", "rope", "logits", "hidden_states"),
    "says": (r"inv_freq", r"\balpha\b"),
    "source": (
        "HunYuanDenseV1RotaryEmbedding",
        "HunYuanDenseV1PreTrainedModel",
        "_init_weights",
        "modeling_hunyuan_v1_dense.py",
        "inv_freq",
    ),
}


def make(folder: str) -> None:
    """Write a tiny HunYuan with the scaling of the published ones, and its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.HunYuanDenseV1Config(
        **TEXT,
        head_dim=8,
        max_position_embeddings=128,
        rope_parameters={
            "rope_type": "dynamic",
            "rope_theta": 10000.0,
            "alpha": 1000.0,
            "factor": 1.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        **IDS,
    )
    transformers.HunYuanDenseV1ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the frequencies of a loaded model and of one that is made of the config."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    made = transformers.AutoModelForCausalLM.from_config(loaded.config)
    return [model.model.rotary_emb.inv_freq.tolist() for model in (loaded, made)]
