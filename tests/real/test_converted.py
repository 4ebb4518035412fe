"""Own code under a type of the library whose checkpoints a release converts for its own class."""

import pytest

CODE = """
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class OwnConfig(PretrainedConfig):
    model_type = "{type}"

    def __init__(self, hidden_size=16, vocab_size=64, **kwargs):
        self.hidden_size, self.vocab_size = hidden_size, vocab_size
        super().__init__(**kwargs)


class Expert(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate_proj = nn.Linear(size, size, bias=False)
        self.up_proj = nn.Linear(size, size, bias=False)
        self.down_proj = nn.Linear(size, size, bias=False)

    def forward(self, x):
        return self.down_proj(torch.sigmoid(self.gate_proj(x)) * self.up_proj(x))


class Mixture(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.experts = nn.ModuleList([Expert(size) for _ in range(2)])

    def forward(self, x):
        return sum(expert(x) for expert in self.experts)


class OwnForCausalLM(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.mlp = Mixture(config.hidden_size)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight)

    def get_input_embeddings(self):
        return self.embed_tokens

    def forward(self, input_ids, attention_mask=None, **kwargs):
        hidden_states = self.embed_tokens(input_ids)
        return CausalLMOutput(logits=self.lm_head(hidden_states + self.mlp(hidden_states)))
"""
MAKE = """
import sys
import torch
from pathlib import Path
from transformers.dynamic_module_utils import get_class_from_dynamic_module

for folder in map(Path, sys.argv[1:]):
    made = get_class_from_dynamic_module("modeling_own.OwnForCausalLM", folder)
    torch.manual_seed(0)
    config = made.config_class(architectures=["OwnForCausalLM"])
    config.auto_map = {
        "AutoConfig": "modeling_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
    }
    made(config).save_pretrained(folder, safe_serialization=True)
"""
MATRIX = """\
environments: ["4.48", "5.2", "5.x"]
defaults:
  dtypes: [float32]
  greedy: 0
  questions: []
  prompts: {short: {length: 5}}
models:
  converted: {path: converted, trust_remote_code: true}
  own: {path: own, trust_remote_code: true}
"""
LOST = {"SB304", "SB310", "SB323"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory, run_script, run_in):
    folder = tmp_path_factory.mktemp("converted")
    for name, model_type in (("converted", "qwen2_moe"), ("own", "own_moe")):
        (folder / name).mkdir()
        code = CODE.replace("{type}", model_type)
        (folder / name / "modeling_own.py").write_text(code)
    run_script("4.48", "-c", MAKE, folder / "converted", folder / "own")
    (folder / "matrix.yaml").write_text(MATRIX)
    return {row.model: row.cells for row in run_in(folder).rows}


def test_experts_that_a_release_renames_for_its_own_class_are_named(rows):
    """It was said of each that the checkpoint does not contain it."""
    _, renamed, newest = rows["converted"]
    assert renamed.verdict == "diverged"
    assert {f.code for f in renamed.findings} & LOST == {"SB323"}
    assert newest.verdict == "identical"
    assert not {f.code for f in newest.findings} & LOST


def test_a_type_of_its_own_is_left_alone(rows):
    for cell in rows["own"]:
        assert cell.verdict.passes
        assert not {f.code for f in cell.findings} & LOST
