"""T5Gemma 2 makes the decoder's ids of labels, as collators ask for it."""

import torch
import transformers
from sizes import GEMMA_IDS, TEXT_128, TOWER

CASE = {
    "symptom": "DataCollatorForSeq2Seq raises TypeError with T5Gemma 2",
    "failure": "unexpected keyword argument 'labels'",
    "says": (r"prepare_decoder_input_ids_from_labels", r"DataCollatorForSeq2Seq"),
    "source": ("prepare_decoder_input_ids_from_labels", "modeling_t5gemma2.py"),
}


def make(folder: str) -> None:
    """Write a tiny T5Gemma 2."""
    text = {
        **TEXT_128,
        "head_dim": 8,
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 16,
        **GEMMA_IDS,
    }
    vision = {**TOWER, "image_size": 16, "patch_size": 8}
    encoder = {
        "text_config": text,
        "vision_config": vision,
        "mm_tokens_per_image": 4,
        "image_token_index": 120,
        "boi_token_index": 121,
        "eoi_token_index": 122,
    }
    config = transformers.T5Gemma2Config(encoder=encoder, decoder=text, image_token_index=120)
    transformers.T5Gemma2ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the decoder's ids that the collator's call makes of labels."""
    model = transformers.T5Gemma2ForConditionalGeneration.from_pretrained(folder)
    try:
        # as transformers.DataCollatorForSeq2Seq calls it
        ids = model.prepare_decoder_input_ids_from_labels(labels=torch.tensor([[5, 6, 7, -100]]))
    except TypeError as error:
        return f"TypeError: {error}"
    return ids.tolist()
