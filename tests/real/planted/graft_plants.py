"""Puts pieces of a healthy tiny model into one with a defect: ``graft_plants.py <probes> <folder>``.

Runs in a stack, without samebits. Leaves ``<defect>.donor.json`` and ``<defect>.json`` for each
defect; every job runs in a fork of its own, so that one defect never meets another.
"""

import json
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, sys.argv[1])
sys.path.insert(0, str(Path(__file__).parents[2] / "inside"))

import feeding
import torch
import transformers
from samebits_probe.graft import graft
from samebits_probe.process.files import StoreFault
from samebits_probe.process.fork import run_in_fork
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

FOLDER = Path(sys.argv[2])
WEIGHT = "model.layers.1.mlp.down_proj.weight"
PROMPTS = {
    "short": {"ids": [7, 3, 9, 21, 14, 30, 5]},
    "padded": {"batch": [{"ids": [3, 4, 5]}, {"ids": [6, 7, 8, 9, 10]}]},
}
ORDERS = {
    "none": {},
    "weight": {"weights": [[WEIGHT, WEIGHT]]},
    "inv_freq": {},
    "positions": {},
    "mask": {"prompt": "padded"},
    "scale": {},
    "config": {"config": {"rms_norm_eps": [1e-06, 1e-04]}},
    "kernel": {},
    "cache": {"what": "decode", "forced": {"short": [11, 12, 13, 14, 15]}},
    "two": {"weights": [[WEIGHT, WEIGHT]]},
    "code": {},
    "code and inv_freq": {},
}


def checkpoint():
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(12.0 if parameter.ndim > 1 else 1.0)
    model.save_pretrained(FOLDER / "healthy")
    model.config.rms_norm_eps = 1e-4
    model.save_pretrained(FOLDER / "config")


def plant(model, defect):
    base = model.model
    if defect in {"weight", "two"}:
        base.layers[1].mlp.down_proj.weight[0, 0] += 0.01
    if defect in {"inv_freq", "two", "code and inv_freq"}:
        table = base.rotary_emb.inv_freq
        table[1] = torch.nextafter(table[1], torch.tensor(9.0))
    if defect == "positions":
        base.rotary_emb.register_forward_pre_hook(
            lambda module, args, kwargs: (
                args[:1],
                {"position_ids": (*args[1:], *kwargs.values())[0] + 1},
            ),
            with_kwargs=True,
        )
    if defect == "scale":
        for layer in base.layers:
            layer.self_attn.scaling *= 1.0001
    if defect == "mask":
        shifted(ALL_ATTENTION_FUNCTIONS["sdpa"])
    if defect == "cache":
        model.register_forward_hook(nudge)
    if defect.startswith("code"):
        for layer in base.layers:
            layer.mlp.register_forward_hook(lambda module, args, output: output * 1.0001)


def shifted(sdpa):
    def attention(module, query, key, value, attention_mask, **more):
        mask = attention_mask if attention_mask is None else attention_mask.roll(1, dims=-1)
        return sdpa(module, query, key, value, mask, **more)

    ALL_ATTENTION_FUNCTIONS["sdpa"] = attention


def nudge(module, args, output):
    from samebits_probe.model import forks

    for name, tensor in forks.cache_tensors(output.past_key_values):
        if name == "layer 0 keys":
            tensor[0, 0, 0, 0] += 0.5


class Patient(graft.Patient):
    """A patient whose model gets the defect as soon as it is loaded."""

    def before(self, model):
        plant(model, self.question["defect"])
        return super().before(model)


def job(defect, role, donor=None, n=0):
    order = ORDERS[defect]
    attention = "eager" if defect == "kernel" and role == "patient" else "sdpa"
    source = "config" if defect == "config" and role == "patient" else "healthy"
    asked = {
        "prompt": "short",
        "what": "forward",
        "forced": {},
        "weights": [],
        "config": {},
        **order,
    }
    asked |= {"role": role, "defect": defect, "buffers": [], "untried": [], "hint": []}
    asked |= {"compared": [[i, i] for i in range(n)]}
    asked |= {"budget": 60, "seconds": 60, "donor": donor, "result": str(FOLDER / f"{defect}.json")}
    if role == "donor":
        asked |= {"weights": [pair[0] for pair in asked["weights"]]}
        asked |= {"result": str(FOLDER / f"{defect}.donor.json")}
    return {
        "cell": {
            "model": "llama",
            "variant": {"dtype": "float32", "attention": attention, "device": "cpu"},
            "stack": "new" if role == "patient" else "old",
        },
        "threads": 1,
        "timeout": 240,
        "model": feeding.chosen(
            {"source": str(FOLDER / source), "trust_remote_code": False, "prompts": PROMPTS}
        ),
        "store": {"root": str(FOLDER), "limit": 1 << 20},
        "task": asked,
    }


def perform(defect):
    n = 5 if ORDERS[defect].get("what") == "decode" else 4
    donor = as_it_runs(graft.Donor, job(defect, "donor", n=n))
    graft.run(donor)
    graft.Patient = Patient
    graft.run(as_it_runs(Patient, job(defect, "patient", donor["task"]["result"], n)))


def as_it_runs(role, asked):
    """Return the job with what the cell's own run gives, of which nothing is known here before."""

    @torch.no_grad()
    def hashes():
        bench = role(asked, asked["task"])
        bench.load()
        return [output.whole for output in bench.outputs(bench.loaded.model)]

    asked["task"]["expected"] = run_in_fork(hashes)
    return asked


def damage(order, choose):
    """Ask the patient of the defect "weight" again, with a bit of what its donor left turned."""
    donor = FOLDER / "weight.donor.json"
    ref = choose(json.loads(donor.read_text("utf-8")))
    path = FOLDER / "tensors" / ref["hash"][:2] / f"{ref['hash']}.bin"
    whole = path.read_bytes()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    graft.Patient = Patient
    again = as_it_runs(Patient, job("weight", "patient", str(donor), 4))
    again["task"]["result"] = str(FOLDER / f"{order}.json")
    try:
        graft.run(again)
    except StoreFault as fault:
        (FOLDER / f"{order}.txt").write_text(str(fault))
    path.write_bytes(whole)


checkpoint()
torch.set_num_threads(1)
for name in sys.argv[3:] or ORDERS:
    run_in_fork(partial(perform, name))
if not sys.argv[3:]:
    run_in_fork(partial(damage, "damaged weight", lambda told: told["state"]["weights"][WEIGHT]))
    run_in_fork(partial(damage, "damaged logits", lambda told: told["outputs"][-1]["ref"]))
