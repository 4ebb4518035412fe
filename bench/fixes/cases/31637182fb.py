"""The size of a head in a config of GLM-MoE-DSA is no other name of the channels that rope turns."""

import torch
import transformers
from sizes import DEEPSEEK, GROUPED, IDS, PLAIN_TEXT

CASE = {
    "made": "5.10.1",
    "symptom": "head_dim of a GLM-MoE-DSA's config.json overwrites qk_rope_head_dim, and the weights do not fit",
    "failure": "size mismatch",
    "signals": ("config", "parameters", "weights", "logits"),
    "says": (r"qk_rope_head_dim", r"\bhead_dim\b", r"size mismatch", r"mismatched"),
    "source": ("GlmMoeDsaConfig", "configuration_glm_moe_dsa.py", "qk_rope_head_dim", "head_dim"),
}


def make(folder: str) -> None:
    """Write a tiny GLM-MoE-DSA whose heads have 16 channels, of which rope turns eight."""
    config = transformers.GlmMoeDsaConfig(
        **GROUPED | PLAIN_TEXT | DEEPSEEK | {"num_key_value_heads": 4},
        head_dim=16,
        index_head_dim=16,
        index_n_heads=2,
        index_topk=8,
        n_group=1,
        topk_group=1,
        max_position_embeddings=64,
        **IDS,
    )
    transformers.GlmMoeDsaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the channels that rope turns, and the shape of the logits or the exception."""
    config = transformers.AutoConfig.from_pretrained(folder)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            seen = [*model(torch.arange(3, 9)[None]).logits.shape]
    except RuntimeError as error:
        seen = f"RuntimeError: {error}"[:120]
    return [config.qk_rope_head_dim, seen]
