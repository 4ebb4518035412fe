"""Weights of custom code that are loaded are not initialised again, in modules with buffers neither."""

import shutil
from pathlib import Path

import torch
import transformers
from saved import edit, imported

CASE = {
    "made": "5.3.0",
    "options": ("--trust-remote-code",),
    "symptom": "loaded weights of a batch norm in custom code are replaced by those that _init_weights writes",
    "signals": ("weights", "parameters", "state", "logits", "hidden_states", "outputs"),
    "findings": ("SB303",),
    "says": (r"norm\.(weight|bias)",),
    "source": ("_initialize_weights", "modeling_utils.py", "_init_weights", "BatchNorm1d", "norm"),
}
CODE = '''"""A model of a table and a batch norm, with code of its own."""

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput


class OwnConfig(PretrainedConfig):
    model_type = "own"

    def __init__(self, vocab_size=64, hidden_size=32, **kwargs):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        super().__init__(**kwargs)


class OwnModel(PreTrainedModel):
    config_class = OwnConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.table = nn.Embedding(config.vocab_size, config.hidden_size)
        self.norm = nn.BatchNorm1d(config.hidden_size)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, nn.Embedding):
            module.weight.data.normal_(0.0, 0.3)
        if isinstance(module, nn.BatchNorm1d):
            module.weight.data.fill_(1.0)
            module.bias.data.zero_()

    def get_input_embeddings(self):
        return self.table

    def set_input_embeddings(self, value):
        self.table = value

    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        states = self.norm(self.table(input_ids).transpose(1, 2)).transpose(1, 2)
        return BaseModelOutput(last_hidden_state=states)
'''


def make(folder: str) -> None:
    """Write the model with weights of its norm that training changed."""
    own = imported(folder, CODE)
    model = own.OwnModel(own.OwnConfig())
    with torch.no_grad():
        model.norm.weight.uniform_(0.5, 2.0)
        model.norm.bias.uniform_(-1.0, 1.0)
    model.save_pretrained(folder)
    edit(
        folder,
        architectures=["OwnModel"],
        model_type="own",
        auto_map={
            "AutoConfig": "modeling_own.OwnConfig",
            "AutoModel": "modeling_own.OwnModel",
        },
    )
    shutil.rmtree(Path(folder, "__pycache__"), ignore_errors=True)


def observe(folder: str) -> object:
    """Return the first weights of the norm."""
    model = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)
    return [round(value, 4) for value in model.norm.weight[:3].tolist()]
