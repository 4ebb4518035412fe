"""Weights are not renamed because gamma or beta stands in their names."""

import torch
import transformers
from saved import add_code, imported
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "made": "4.49.0",
    "options": ("--trust-remote-code",),
    "symptom": "a weight of own code that is called gamma is not loaded: its name is taken for a former one",
    "area": "loading and saving",
    "signals": ("weights", "parameters", "logits", "hidden_states", "greedy"),
    "says": (r"\bgamma\b", r"_gamma\b"),
    "source": ("_fix_state_dict_key_on_load", "gamma", "modeling_utils.py"),
}
CODE = '''"""A Llama with a factor for each state before its head."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "own_llama"


class OwnScale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(size))

    def forward(self, states):
        return states * self.gamma


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.norm = nn.Sequential(self.model.norm, OwnScale(config.hidden_size))
'''


def make(folder: str) -> None:
    """Write the model with factors that training changed, and a tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    own = imported(folder, CODE)
    config = own.OwnConfig(**TEXT, max_position_embeddings=64, **IDS)
    model = own.OwnForCausalLM(config)
    with torch.no_grad():
        model.model.norm[1].gamma.uniform_(0.5, 2.0)
    model.save_pretrained(folder)
    add_code(folder, CODE)


def observe(folder: str) -> object:
    """Return what is missing of the file, and whether the factors are those that it has."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    gamma = model.model.norm[1].gamma
    return {"missing": sorted(info["missing_keys"]), "ones": bool((gamma == 1).all())}
