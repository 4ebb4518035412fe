"""SmolVLM sees its image in each step of generate() without a cache."""

import smolvlm
import torch
import transformers

CASE = {
    "packages": ("torchvision", "num2words"),
    "symptom": "generate(use_cache=False) of Idefics 3 and SmolVLM forgets the image after the first token",
    "area": "generation",
    "says": (r"use_cache=False", r"without (a|the) cache"),
    "source": (
        "SmolVLMForConditionalGeneration",
        "modeling_smolvlm.py",
        "prepare_inputs_for_generation",
    ),
}


def make(folder: str) -> None:
    """Write a tiny SmolVLM."""
    smolvlm.make(folder)


def observe(folder: str) -> object:
    """Return whether the scores of a generation are the same with and without a cache."""
    model = transformers.SmolVLMForConditionalGeneration.from_pretrained(folder).eval()
    with torch.no_grad():
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.mul_(8)
    image = model.config.image_token_id
    ids = torch.tensor([[1, *[image] * 4, 11, 12, 13]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(1, 1, 3, 32, 32),
    }
    scores = [
        torch.cat(
            model.generate(
                **inputs,
                use_cache=use_cache,
                max_new_tokens=3,
                min_new_tokens=3,
                do_sample=False,
                suppress_tokens=[image],
                output_logits=True,
                return_dict_in_generate=True,
            ).logits
        )
        for use_cache in (True, False)
    ]
    return {"scores are equal": bool((scores[0] - scores[1]).abs().max() < 1e-3)}
