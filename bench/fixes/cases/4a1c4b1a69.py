"""DeepSeek V2 scales its attention by mscale_all_dim of YaRN."""

import torch
import transformers
from sizes import DEEPSEEK, IDS, PLAIN_TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "DeepSeek V2 ignores mscale_all_dim of YaRN in the scale of its attention: other logits",
    "signals": ("hidden_states", "logits", "decode"),
    "says": (r"mscale_all_dim",),
    "source": ("yarn_apply_mscale", "yarn_get_mscale", "DeepseekV2Attention", "scaling"),
}


def make(folder: str) -> None:
    """Write a tiny DeepSeek V2 with YaRN, and its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.DeepseekV2Config(
        **PLAIN_TEXT,
        **DEEPSEEK,
        num_key_value_heads=4,
        max_position_embeddings=256,
        **IDS,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 40.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
        },
    )
    transformers.DeepseekV2ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the scale of the attention and a logit."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        logit = model(torch.arange(4, 16)[None]).logits[0, -1, 0].item()
    return [round(model.model.layers[0].self_attn.scaling, 5), round(logit, 3)]
