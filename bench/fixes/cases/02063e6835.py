"""Names of rope keys to ignore may be a list, as JSON has them."""

from saved import edit
from sizes import TEXT
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

CASE = {
    "symptom": "loading a config whose ignore_keys_at_rope_validation is a list raises TypeError",
    "area": "loading and saving",
    "failure": "unsupported operand type(s) for -=",
    "says": ("unsupported operand", "ignore_keys"),
    "source": ("_check_received_keys", "modeling_rope_utils.py"),
}


def make(folder: str) -> None:
    """Write the artefact."""
    config = LlamaConfig(**TEXT, eos_token_id=None, bos_token_id=1)
    LlamaForCausalLM(config).save_pretrained(folder)

    edit(
        folder,
        ignore_keys_at_rope_validation=["mrope_section"],
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [1, 1, 2],
        },
    )


def observe(folder: str) -> object:
    """Return what a user sees."""
    AutoConfig.from_pretrained(folder)
    return "loaded"
