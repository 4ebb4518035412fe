"""SAM's attention is that of the library, and its prompts are not looked at."""

import sam
import torch
import transformers

CASE = {
    "symptom": "SAM raises AttributeError when it is trained, as its new attention reads a dropout that it does not have",
    "failure": "dropout_p",
    "says": (r"dropout_p", r"get_prompt_embeddings"),
    "source": ("SamAttention", "modeling_sam.py"),
}


def make(folder: str) -> None:
    """Write a tiny SAM and its processor."""
    sam.save_model(folder)
    transformers.SamProcessor(sam.image_processor()).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the sum of gradients of masks in training, or the exception."""
    model = transformers.SamModel.from_pretrained(folder).train()
    masks = model(
        pixel_values=torch.zeros(1, 3, 32, 32),
        input_points=torch.tensor([[[[10.0, 10.0]]]]),
        input_labels=torch.tensor([[[1]]]),
    ).pred_masks
    masks.sum().backward()
    return "trained"
