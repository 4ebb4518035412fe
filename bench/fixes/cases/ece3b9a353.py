"""A config of Gemma 4 (unified) that leaves out its length has that of the published models."""

import json
import pathlib

import transformers
from sizes import TEXT_128

CASE = {
    "symptom": "Gemma 4 (unified) has 131072 positions where config.json leaves them out, not 262144",
    "area": "loading and saving",
    "findings": ("SB209",),
    "says": (r"max_position_embeddings.*(131072|262144)",),
    "source": ("Gemma4UnifiedTextConfig", "configuration_gemma4_unified.py"),
}


def make(folder: str) -> None:
    """Write a tiny Gemma 4 (unified) for text, of which config.json leaves out the length."""
    config = transformers.Gemma4UnifiedTextConfig(
        **TEXT_128,
        head_dim=8,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=16,
    )
    transformers.Gemma4UnifiedForCausalLM(config).save_pretrained(folder)
    path = pathlib.Path(folder, "config.json")
    values = json.loads(path.read_text())
    values.pop("max_position_embeddings", None)
    path.write_text(json.dumps(values, indent=2))


def observe(folder: str) -> object:
    """Return the length of the config."""
    config = transformers.AutoConfig.from_pretrained(folder)
    return {"max_position_embeddings": config.max_position_embeddings}
