"""A model with code of its own loads weights that have its names, whatever its type renames."""

from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from saved import add_code, imported
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "made": "5.3.0",
    "options": ("--trust-remote-code",),
    "symptom": "the experts of a DeepSeek-V3 with code of its own are not loaded: their names are those of transformers' class",
    "signals": ("weights", "parameters", "logits", "hidden_states", "greedy"),
    "says": (r"experts\.\d\.(gate|up|down)_proj", r"experts\.(gate_up|down)_proj"),
    "source": ("convert_and_load_state_dict_in_model", "core_model_loading.py", "experts"),
}
CODE = '''"""A Llama with experts, of which each is a module, as in DeepSeek's own code."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "deepseek_v3"


class OwnMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, states):
        return self.down_proj(nn.functional.silu(self.gate_proj(states)) * self.up_proj(states))


class OwnMoE(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, 2, bias=False)
        self.experts = nn.ModuleList([OwnMLP(config) for _ in range(2)])

    def forward(self, states):
        shares = self.gate(states).softmax(-1)
        return sum(shares[..., i : i + 1] * each(states) for i, each in enumerate(self.experts))


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.mlp = OwnMoE(config)
        self.post_init()
'''


def make(folder: str) -> None:
    """Write the model with the names of its own code, and a tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    own = imported(folder, CODE)
    config = own.OwnConfig(**TEXT, max_position_embeddings=64, **IDS)
    model = own.OwnForCausalLM(config)
    config.save_pretrained(folder)
    save_file(model.state_dict(), Path(folder, "model.safetensors"), {"format": "pt"})
    add_code(folder, CODE)


def observe(folder: str) -> object:
    """Return how many weights are missing, and a sum of those of the experts and of the logits."""
    torch.manual_seed(1)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, output_loading_info=True
    )
    with torch.no_grad():
        logits = model(torch.arange(3, 9)[None]).logits
    expert = model.model.layers[0].mlp.experts[0].gate_proj.weight
    return [
        len(info["missing_keys"]),
        round(expert.double().abs().sum().item(), 3),
        round(logits.double().abs().sum().item(), 3),
    ]
