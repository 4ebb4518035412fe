"""Emu3 sees the images it is given."""

import torch
import transformers
from sizes import GROUPED, IDS

CASE = {
    "symptom": "Emu3ForConditionalGeneration ignores pixel_values: any image gives the same logits",
    "signals": ("logits", "hidden_states", "greedy"),
    "findings": ("SB926",),
    "says": (r"Emu3ForConditionalGeneration.*pixel_values", r"pixel_values.*ignored"),
    "source": ("Emu3ForConditionalGeneration", "modeling_emu3.py"),
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
    """Return whether two images give a text the same logits."""
    model = transformers.Emu3ForConditionalGeneration.from_pretrained(folder).eval()
    torch.manual_seed(1)
    tokens = model.model.get_image_tokens(torch.randn(1, 3, 16, 16), torch.tensor([[16, 16]]))
    ids = torch.tensor([[1, *[IMAGE] * tokens.numel(), 50, 51]])
    logits = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        inputs = {
            "pixel_values": torch.randn(1, 3, 16, 16),
            "image_sizes": torch.tensor([[16, 16]]),
        }
        with torch.no_grad():
            logits.append(model(input_ids=ids, **inputs).logits)
    return {"two images give the same logits": bool(torch.equal(*logits))}
