"""Emu3 with a head makes images of its tokens, as its documentation shows."""

import torch
import transformers
from sizes import GROUPED, IDS

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
IMAGE = 3


def make(folder: str) -> None:
    """Write a tiny Emu3, of which 20 tokens stand for codes of images."""
    names = {number: f"word{number}" for number in range(100)}
    names |= {number: f"<|visual token {number - 10:06d}|>" for number in range(10, 30)}
    names |= {IMAGE: "<image>", 4: "<|extra_200|>"}
    text = {
        "vocab_size": 100,
        **GROUPED,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
        **IDS,
    }
    vq = {
        "codebook_size": 20,
        "embed_dim": 4,
        "temporal_downsample_factor": 1,
        "base_channels": 32,
        "channel_multiplier": [1, 2, 1],
        "num_res_blocks": 1,
        "hidden_size": 32,
        "attn_resolutions": [],
    }
    config = transformers.Emu3Config(
        text_config=text,
        vq_config=vq,
        vocabulary_map={name: number for number, name in names.items()},
    )
    transformers.Emu3ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the image that four codes make, or the exception."""
    model = transformers.Emu3ForConditionalGeneration.from_pretrained(folder).eval()
    tokens = torch.tensor([[10, 11, 4, 12, 13, 4, 5, 6, 7]])  # three more end an image
    try:
        with torch.no_grad():
            image = model.decode_image_tokens(image_tokens=tokens, height=2, width=2)
    except AttributeError as error:
        return f"AttributeError: {error}"
    return [*image.shape]
