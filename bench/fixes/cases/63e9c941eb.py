"""A model of custom code may have its config class from another file than the config."""

import pathlib

import torch
import transformers
from saved import edit
from sizes import GROUPED

CASE = {
    "options": ("--trust-remote-code",),
    "symptom": "custom code whose config class stands in two files raises ValueError: config_class is not consistent",
    "failure": "not consistent with the",
    "says": (r"not consistent with the",),
    "source": ("register", "auto_factory.py", "_BaseAutoModelClass"),
}
CONFIG = '''"""The config of a Llama with code of its own."""

from transformers import LlamaConfig


class OwnConfig(LlamaConfig):
    """Has what Llama's has."""

    model_type = "own"
'''
CODE = '''"""A Llama with code of its own in one file, as others import it."""

from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    """Has what Llama's has."""

    model_type = "own"


class OwnForCausalLM(LlamaForCausalLM):
    """Computes what Llama computes."""

    config_class = OwnConfig
'''


def make(folder: str) -> None:
    """Write a tiny Llama with code of its own in two files."""
    config = transformers.LlamaConfig(vocab_size=64, **GROUPED, initializer_range=0.3)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    pathlib.Path(folder, "configuration_own.py").write_text(CONFIG)
    pathlib.Path(folder, "modeling_own.py").write_text(CODE)
    edit(
        folder,
        architectures=["OwnForCausalLM"],
        model_type="own",
        auto_map={
            "AutoConfig": "configuration_own.OwnConfig",
            "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
        },
    )


def observe(folder: str) -> object:
    """Return the shape of the logits of a text."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    with torch.no_grad():
        return list(model(torch.arange(3, 9)[None]).logits.shape)
