"""Emu3 with a head makes images of its tokens, as its documentation shows."""

import emu3
import torch
import transformers

CASE = {
    "symptom": "Emu3ForConditionalGeneration has neither decode_image_tokens nor vocabulary_mapping: no image can be generated",
    "failure": "decode_image_tokens",
    "says": (r"decode_image_tokens", r"vocabulary_mapping"),
    "source": (
        "decode_image_tokens",
        "vocabulary_mapping",
        "Emu3ForConditionalGeneration.decode_image_tokens",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Emu3, of which 20 tokens stand for codes of images."""
    emu3.make(folder)


def observe(folder: str) -> object:
    """Return the shape of the image that four codes make, or the exception."""
    model = transformers.Emu3ForConditionalGeneration.from_pretrained(folder).eval()
    tokens = torch.tensor([[10, 11, 4, 12, 13, 4, 5, 6, 7]])  # three more end an image
    with torch.no_grad():
        image = model.decode_image_tokens(image_tokens=tokens, height=2, width=2)
    return [*image.shape]
