"""A config whose ignore_keys_at_rope_validation is a list, as JSON has it, is loaded."""

import json
from pathlib import Path

import transformers
from sizes import SMALL

CASE = {
    "symptom": "loading a config with a partial rope and a list of ignored rope keys raises TypeError",
    "area": "loading and saving",
    "failure": "unsupported operand type(s) for |",
    "says": (r"unsupported operand type\(s\) for \|",),
    "source": ("convert_rope_params_to_dict", "modeling_rope_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Phi whose config names a rope key to ignore."""
    config = transformers.PhiConfig(
        vocab_size=128,
        **SMALL,
        max_position_embeddings=64,
        initializer_range=0.3,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    )
    transformers.PhiForCausalLM(config).save_pretrained(folder)
    path = Path(folder) / "config.json"
    settings = json.loads(path.read_text("utf-8"))
    settings["partial_rotary_factor"] = settings["rope_parameters"].pop("partial_rotary_factor")
    settings["ignore_keys_at_rope_validation"] = ["mrope_section"]
    path.write_text(json.dumps(settings, indent=2), "utf-8")


def observe(folder: str) -> object:
    """Return the share of a head that rope turns, or the exception."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return model.config.rope_parameters["partial_rotary_factor"]
