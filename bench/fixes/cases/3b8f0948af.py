"""Qwen2-VL counts the positions behind a cache from the ids that the cache holds."""

import torch
import transformers
from qwen2_vl import make  # noqa: F401  a part of the case

CASE = {
    "packages": ("torchvision",),
    "symptom": "Qwen2-VL of 5.2 answers otherwise in a second generate() of text over the first one's cache",
    "area": "generation",
    "signals": ("greedy",),
    "findings": ("SB705", "SB916"),
    "says": (r"rope_deltas", r"position_ids"),
    "source": ("_prepare_position_ids_for_generation", "get_rope_index", "rope_deltas"),
}


def observe(folder: str) -> object:
    """Return the ids of a second answer, over the cache of the first and anew."""
    model = transformers.Qwen2VLForConditionalGeneration.from_pretrained(folder).eval()
    image = model.config.image_token_id
    start = model.config.vision_start_token_id
    ids = torch.tensor([[70, 71, start, image, image, image, image, 72, 73]])
    pixels = torch.rand(16, 96, generator=torch.Generator().manual_seed(0))
    picture = {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, 4, 4]])}
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    first = model.generate(ids, **picture, **options, return_dict_in_generate=True)
    more = torch.cat([first.sequences, torch.tensor([[74, 75, 76]])], 1)
    again = model.generate(more, past_key_values=first.past_key_values, **options)
    anew = model.generate(more, **picture, **options)
    return [answer[0, more.shape[1] :].tolist() for answer in (again, anew)]
