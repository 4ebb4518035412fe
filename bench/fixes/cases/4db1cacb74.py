"""A custom config may have the former names of layers."""

import transformers
from saved import add_code
from sizes import GROUPED

CASE = {
    "before": "5.13.0",
    "after": "5.13.1",
    "made": "5.13.1",
    "options": ("--trust-remote-code",),
    "symptom": "a custom config whose layer_types say 'attention' is refused: ValueError",
    "findings": ("SB205",),
    "failure": "layer_types",
    "says": (r"layer_types.*entries must be",),
    "source": ("validate_layer_type", "configuration_utils.py"),
}
CODE = '''"""A Llama with code of its own."""

from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    """Says which kind each layer has."""

    model_type = "own_llama"

    def __init__(self, layer_types=None, **kwargs):
        self.layer_types = layer_types
        super().__init__(**kwargs)


class OwnForCausalLM(LlamaForCausalLM):
    """Computes what Llama computes."""

    config_class = OwnConfig
'''


def make(folder: str) -> None:
    """Write a tiny Llama with code of its own."""
    config = transformers.LlamaConfig(vocab_size=64, **GROUPED, initializer_range=0.3)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    add_code(folder, CODE, model_type="own_llama", layer_types=["attention", "attention"])


def observe(folder: str) -> object:
    """Return the class that loads, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    return type(model).__name__
