"""A config with an infinite number is saved as JSON that every parser reads."""

import json
import tempfile
from pathlib import Path

import transformers
from sizes import IDS

CASE = {
    "symptom": "save_pretrained of Mamba2 writes Infinity into config.json, which is no JSON; 5.x writes an object in its place",
    "says": (r"__float__", r"time_step_limit.*Infinity", r"Infinity.*time_step_limit"),
    "source": ("_encode_special_floats", "_decode_special_floats", "to_json_string"),
}


def make(folder: str) -> None:
    """Write a tiny Mamba2, whose steps have no upper limit."""
    config = transformers.Mamba2Config(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_heads=4,
        head_dim=16,
        state_size=8,
        n_groups=1,
        expand=2,
        chunk_size=8,
        initializer_range=0.3,
        **IDS,
    )
    transformers.Mamba2ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a strict parser makes of the config that is saved again."""
    config = transformers.AutoConfig.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as saved:
        config.save_pretrained(saved)
        text = Path(saved, "config.json").read_text("utf-8")
    try:
        values = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        return str(error)
    return {"time_step_limit": values["time_step_limit"]}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
