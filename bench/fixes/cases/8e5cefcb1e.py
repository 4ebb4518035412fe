"""A model two of whose weights overlap in memory is saved."""

import transformers
from sizes import TEXT

CASE = {
    "symptom": "save_pretrained of a model with overlapping weights raises TypeError: unhashable type, instead of their names",
    "failure": "unhashable type",
    "says": (r"unhashable type", r"shared tensors"),
    "source": ("save_pretrained", "modeling_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama."""
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT)).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the exception of saving a model one of whose weights is a part of another one."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    first, second = model.model.layers
    first.input_layernorm.weight.data = second.mlp.down_proj.weight.data.view(-1)[:32]
    try:
        model.save_pretrained(f"{folder}/again")
    except (TypeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"[:60]
    return "saved"
