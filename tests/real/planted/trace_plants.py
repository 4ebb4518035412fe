"""Traces a tiny model with one defect planted in it: ``trace_plants.py <probes> <orders.json>``.

Runs in a stack, without samebits. Each order has a defect, a dtype, operations to look at, and
the file to leave.
"""

import importlib.util
import json
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

import torch
import transformers
from samebits_probe.model.inputs import Inputs
from samebits_probe.model.load import Loaded
from samebits_probe.trace import job as trace_job
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SPEC = importlib.util.spec_from_file_location(
    "transformers_modules.planted_attention", Path(__file__).with_name("planted_attention.py")
)
PLANTED = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(PLANTED)


def model(dtype):
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        attn_implementation="sdpa",
    )
    made = transformers.LlamaForCausalLM(config).to(dtype).eval()
    made.model.rotary_emb.inv_freq = made.model.rotary_emb.inv_freq.float()
    return made


def plant(made, defect):
    with torch.no_grad():
        if defect == "weight":
            made.model.layers[1].mlp.down_proj.weight[0, 0] += 0.01
        if defect == "inv_freq":
            table = made.model.rotary_emb.inv_freq
            table[1] = torch.nextafter(table[1], torch.tensor(9.0))


class Planted(trace_job.Traced):
    """A trace job whose model is made here instead of loaded."""

    def facts(self):
        dtype = getattr(torch, self.job["dtype"])
        made = model(dtype)
        plant(made, self.job["defect"])
        if self.job["defect"] != "stock":
            ALL_ATTENTION_FUNCTIONS["sdpa"] = PLANTED.attention
        PLANTED.DEFECT = self.job["defect"]
        self.loaded = Loaded(made, made.config, None, "causal-lm", {})
        return self._traced()

    def _prompts(self):
        ids = (torch.arange(9)[None] * 7) % 40
        return Inputs({"input_ids": ids}, None, None)


for order in json.loads(Path(sys.argv[2]).read_text()):
    look = order.get("look", [])
    job = {
        **order,
        "cell": {
            "model": order["defect"] or "clean",
            "variant": {"dtype": order["dtype"], "attention": "default", "device": "cpu"},
            "stack": order["stack"],
        },
        "model": {"source": "", "trust_remote_code": False},
        "store": {"root": order["root"], "limit": 1 << 20},
        "task": {"prompt": "short", "what": "forward", "look": look, "result": order["result"]},
    }
    with torch.no_grad():
        trace_job.write(job, Planted(job).facts())
