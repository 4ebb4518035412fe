"""Qwen3-Omni speaks."""

import qwen3_omni
import torch
import transformers

CASE = {
    "made": "5.5.0",
    "symptom": "generate() of Qwen3-Omni with a voice raises TypeError: multiple values for argument 'next_sequence_length'",
    "area": "generation",
    "failure": "next_sequence_length",
    "says": (r"next_sequence_length", r"initializer_range"),
    "source": (
        "Qwen3OmniMoeTalkerForConditionalGeneration",
        "Qwen3OmniMoeConfig",
        "modeling_qwen3_omni_moe.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Qwen3-Omni."""
    qwen3_omni.make(folder)


def observe(folder: str) -> object:
    """Return what a text with a voice becomes, or the exception."""
    model = transformers.Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder).eval()
    turns = qwen3_omni.TURNS
    ids = [turns["start"], turns["user"], 5, 6, 7, turns["end"], turns["start"], turns["assistant"]]
    ids = torch.tensor([ids])
    torch.manual_seed(0)
    made = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        return_audio=True,
        speaker="a",
        thinker_max_new_tokens=4,
        talker_max_new_tokens=4,
    )
    return [type(part).__name__ for part in made]
