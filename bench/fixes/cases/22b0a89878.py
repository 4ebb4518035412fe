"""Granite Speech saves its weights under their own names beside its adapter."""

import tempfile
from pathlib import Path

import peft
import transformers
from safetensors import safe_open
from saved import edit
from sizes import GROUPED, TOWER

CASE = {
    "packages": ("peft", "torchaudio"),
    "symptom": "save_pretrained of Granite Speech with its adapter writes weights named base_layer, which do not load",
    "area": "loading and saving",
    "findings": ("SB307", "SB311", "SB317"),
    "says": (r"base_layer",),
    "source": (
        "GraniteSpeechForConditionalGeneration",
        "modeling_granite_speech.py",
        "save_pretrained",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Granite Speech with an adapter in the same folder, as the published one has it."""
    config = transformers.GraniteSpeechConfig(
        text_config={"model_type": "granite", "vocab_size": 64, **GROUPED, "pad_token_id": 0},
        encoder_config={
            "input_dim": 16,
            "num_layers": 2,
            "hidden_dim": 32,
            "num_heads": 2,
            "dim_head": 16,
            "output_dim": 8,
            "context_size": 20,
            "max_pos_emb": 32,
            "conv_kernel_size": 3,
        },
        projector_config={"model_type": "blip_2_qformer", **TOWER, "encoder_hidden_size": 32},
        audio_token_index=60,
        has_lora_adapter=True,
        window_size=15,
        downsample_rate=5,
    )
    model = transformers.GraniteSpeechForConditionalGeneration(config)
    model.save_pretrained(folder)
    adapter = peft.LoraConfig(
        r=2, target_modules=["q_proj", "v_proj"], base_model_name_or_path=folder
    )
    model.add_adapter(adapter)
    with tempfile.TemporaryDirectory() as saved:
        super(type(model), model).save_pretrained(saved)
        for path in Path(saved).glob("adapter_*"):
            Path(folder, path.name).write_bytes(path.read_bytes())
    edit(folder, "adapter_config.json", base_model_name_or_path=folder)


def observe(folder: str) -> object:
    """Return how many saved tensors have a name that the model does not know."""
    model = transformers.GraniteSpeechForConditionalGeneration.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        with safe_open(Path(saved, "model.safetensors"), "pt") as file:
            names = [*file.keys()]
    return {"tensors named base_layer": sum("base_layer" in name for name in names)}
