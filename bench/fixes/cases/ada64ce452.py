"""Florence-2 does not pass the Trainer's num_items_in_batch on to BART's decoder."""

import tempfile

import torch
import transformers
from sizes import BART

CASE = {
    "symptom": "training Florence-2 with the Trainer raises TypeError: BartDecoder got num_items_in_batch",
    "packages": ("accelerate",),
    "failure": "num_items_in_batch",
    "says": (r"num_items_in_batch",),
    "source": (
        "Florence2Model",
        "Florence2ForConditionalGeneration",
        "modeling_florence2.py",
    ),
}
IMAGE, TILES, SIZE = 60, 5, 64


def make(folder: str) -> None:
    """Write a tiny Florence-2."""
    config = transformers.Florence2Config(
        text_config={
            "model_type": "bart",
            "vocab_size": 64,
            **BART,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "max_position_embeddings": 64,
            "init_std": 0.3,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "decoder_start_token_id": 2,
        },
        vision_config={
            "depths": (1, 1, 1, 1),
            "embed_dim": (16, 16, 16, 32),
            "num_heads": (2, 2, 2, 4),
            "num_groups": (2, 2, 2, 4),
            "window_size": 4,
            "drop_path_rate": 0.0,
            "projection_dim": 32,
        },
        image_token_id=IMAGE,
    )
    transformers.Florence2ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the Trainer makes a step, or the exception."""
    model = transformers.Florence2ForConditionalGeneration.from_pretrained(folder)
    torch.manual_seed(0)
    example = {
        "input_ids": torch.tensor([0, *[IMAGE] * TILES, 7, 8, 9, 2]),
        "attention_mask": torch.ones(TILES + 5, dtype=torch.long),
        "pixel_values": torch.randn(3, SIZE, SIZE),
        "decoder_input_ids": torch.tensor([2, 0, 10, 11, 12]),
        "labels": torch.tensor([0, 10, 11, 12, 2]),
    }
    with tempfile.TemporaryDirectory() as output:
        arguments = transformers.TrainingArguments(
            output,
            max_steps=1,
            per_device_train_batch_size=2,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            remove_unused_columns=False,
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, arguments, train_dataset=[example] * 2)
        try:
            step = trainer.train().global_step
        except TypeError as error:
            return f"TypeError: {error}".splitlines()[0]
    return {"steps": step}
