"""The router of a Switch Transformer computes in the type of its inputs."""

import torch
import transformers
from sizes import T5

CASE = {
    "symptom": "the forward of a Switch Transformer in bfloat16 raises: its router has other types of inputs and weights",
    "failure": "to have the same dtype",
    "says": (r"to have the same dtype", r"SwitchTransformersTop1Router"),
    "source": ("SwitchTransformersTop1Router", "modeling_switch_transformers.py"),
}


def make(folder: str) -> None:
    """Write a tiny one in bfloat16."""
    config = transformers.SwitchTransformersConfig(
        vocab_size=64,
        **T5,
        num_layers=2,
        num_decoder_layers=2,
        num_experts=4,
        num_sparse_encoder_layers=1,
        num_sparse_decoder_layers=1,
        expert_capacity=16,
        router_jitter_noise=0.0,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    model = transformers.SwitchTransformersForConditionalGeneration(config)
    model.to(torch.bfloat16).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of its logits in the checkpoint's type, or the exception."""
    model = transformers.SwitchTransformersForConditionalGeneration.from_pretrained(
        folder, dtype="auto"
    ).eval()
    ids = torch.arange(5, 13)[None]
    with torch.no_grad():
        out = model(input_ids=ids, decoder_input_ids=ids[:, :4])
    return [*out.logits.shape]
