"""Apertus keeps the parameters of its xIELU in the dtype of the model, not always in bfloat16."""

import transformers
from sizes import IDS, TEXT

CASE = {
    "symptom": "Apertus computes xIELU with bfloat16 parameters in a float32 model, and raises in a float16 one",
    "signals": ("weights", "buffers", "logits", "hidden_states", "greedy"),
    "failure": "to have the same dtype",
    "says": (r"act_fn\.(alpha_[pn]|beta|eps)", r"(?i)xielu"),
    "source": ("XIELUActivation", "ApertusMLP", "modeling_apertus.py"),
}


def make(folder: str) -> None:
    """Write a tiny Apertus in float32."""
    config = transformers.ApertusConfig(
        **TEXT,
        max_position_embeddings=64,
        rope_theta=10000.0,
        rope_scaling=None,
        **IDS,
    )
    transformers.ApertusForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the dtypes of the parameters and buffers of a model made of the config."""
    # 5.0.0 has the fix, but loads no Apertus: it asks a tensor on meta for its value
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config)
    activation = model.model.layers[0].mlp.act_fn
    dtypes = {name: str(tensor.dtype) for name, tensor in activation.state_dict().items()}
    return {"model": str(model.dtype), **dtypes, "eps": float(activation.eps)}
