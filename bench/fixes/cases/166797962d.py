"""A checkpoint of Aria with the names of its first release is loaded."""

import re
from pathlib import Path

import transformers
from safetensors.torch import load_file, save_file
from sizes import GROUPED, SMALL
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig

CASE = {
    "symptom": "a published Aria has random weights, as its names are not renamed when they are loaded",
    "signals": ("weights",),
    "findings": ("SB207", "SB208"),
    "says": (r"conversion", r"renam"),
    "source": ("conversion_mapping", "_MODEL_TO_CONVERSION_PATTERN"),
}
PUBLISHED = {
    r"^model\.language_model\.": "language_model.model.",
    r"^model\.": "",
    r"^lm_head\.": "language_model.lm_head.",
}
"""Names of the published checkpoint, which is older than the model around the parts."""


def make(folder: str) -> None:
    """Write a tiny Aria with the names of the published one."""
    text = transformers.AriaTextConfig(
        vocab_size=64,
        **GROUPED,
        head_dim=8,
        moe_num_experts=3,
        moe_topk=2,
        moe_num_shared_experts=1,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    config = transformers.AriaConfig(
        text_config=text,
        vision_config=Idefics3VisionConfig(**SMALL, image_size=16, patch_size=8),
        projector_patch_to_query_dict={4: 4},
        image_token_index=60,
    )
    transformers.AriaForConditionalGeneration(config).save_pretrained(folder)
    path = Path(folder, "model.safetensors")
    weights = {_published(name): value for name, value in load_file(path).items()}
    save_file(weights, path, {"format": "pt"})


def _published(name: str) -> str:
    """Return the published name of a weight; one that has it already keeps it."""
    for pattern, old in PUBLISHED.items():
        renamed, times = re.subn(pattern, old, name)
        if times:
            return renamed
    return name


def observe(folder: str) -> object:
    """Return how many weights the checkpoint lacks, and how many of it nobody takes."""
    _, info = transformers.AriaForConditionalGeneration.from_pretrained(
        folder, output_loading_info=True
    )
    return {key: len(info[key]) for key in ("missing_keys", "unexpected_keys")}
