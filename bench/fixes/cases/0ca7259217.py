"""The trainer leaves the cache of PaliGemma out of its predictions."""

import torch
import transformers
from sizes import SMALL

CASE = {
    "packages": ("accelerate",),
    "symptom": "the trainer takes the cache of PaliGemma for a prediction, as its config ignores no key",
    "area": "computation",
    "says": (r"keys_to_ignore_at_inference",),
    "source": ("PaliGemmaConfig", "configuration_paligemma.py"),
}


def make(folder: str) -> None:
    """Write a tiny PaliGemma."""
    config = transformers.PaliGemmaConfig(
        text_config={
            "model_type": "gemma",
            "vocab_size": 64,
            **SMALL,
            "num_key_value_heads": 1,
            "head_dim": 8,
        },
        vision_config={
            "model_type": "siglip_vision_model",
            **SMALL,
            "image_size": 32,
            "patch_size": 16,
            "projection_dim": 32,
        },
        image_token_index=60,
        vocab_size=64,
        projection_dim=32,
        hidden_size=32,
    )
    transformers.PaliGemmaForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many predictions the trainer has of a row, or the exception."""
    model = transformers.PaliGemmaForConditionalGeneration.from_pretrained(folder)
    ids = torch.tensor([60] * 4 + [2, 5, 6, 7])
    row = {
        "input_ids": ids,
        "token_type_ids": torch.zeros_like(ids),
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.zeros(3, 32, 32),
        "labels": ids,
    }
    options = transformers.TrainingArguments(folder, use_cpu=True, report_to=[])
    trainer = transformers.Trainer(model=model, args=options)
    try:
        predictions = trainer.predict([row, row]).predictions
    except TypeError as error:
        return f"{type(error).__name__}: {error}"[:90]
    return len(predictions) if isinstance(predictions, tuple) else "logits alone"
