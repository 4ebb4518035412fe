"""The loss of Gemma 4 counts each token that is not padding once."""

import torch
import transformers
from sizes import GEMMA4_TEXT, GEMMA4_VISION

CASE = {
    "symptom": "Gemma 4 ignores num_items_in_batch: gradient accumulation averages its loss otherwise",
    "signals": ("loss",),
    "findings": ("SB841", "SB843", "SB846", "SB848", "SB854", "SB857", "SB858"),
    "says": (r"num_items_in_batch",),
    "source": (
        "Gemma4ForConditionalGeneration",
        "modeling_gemma4.py",
        "loss_function",
        "ForCausalLMLoss",
    ),
}


def make(folder: str) -> None:
    """Write a tiny Gemma 4."""
    config = transformers.Gemma4Config(
        text_config=GEMMA4_TEXT,
        vision_config=GEMMA4_VISION,
        audio_config=None,
        image_token_id=60,
        video_token_id=61,
        audio_token_id=59,
        boi_token_id=58,
        eoi_token_id=57,
    )
    transformers.Gemma4ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the loss of a row with num_items_in_batch, and of a row that is padded on the left."""
    model = transformers.Gemma4ForConditionalGeneration.from_pretrained(folder).eval()
    ids = torch.tensor([[0, 0, 5, 6, 7, 8, 9]])
    mask = (ids != 0).long()
    labels = ids.masked_fill(ids == 0, -100)
    inputs = {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": torch.zeros_like(ids)}
    with torch.no_grad():
        plain = model(**inputs, labels=labels).loss
        counted = model(**inputs, labels=labels, num_items_in_batch=10).loss
    return {
        "loss over loss with num_items_in_batch": round(float(plain / counted), 3),
        "loss": round(float(plain), 3),
    }
