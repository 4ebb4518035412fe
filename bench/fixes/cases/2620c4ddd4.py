"""Perceiver stretches its learned positions to the size of the image."""

import torch
import transformers

CASE = {
    "symptom": "an image of another size with interpolate_pos_encoding=True raises, as positions keep their number",
    "failure": "Sizes of tensors must match",
    "says": (r"interpolate_pos_encoding", r"Sizes of tensors must match"),
    "source": ("interpolate_pos_encoding", "PerceiverTrainablePositionEncoding"),
}


def make(folder: str) -> None:
    """Write a tiny Perceiver with learned positions."""
    config = transformers.PerceiverConfig(
        num_latents=10,
        d_latents=20,
        d_model=64,
        qk_channels=20,
        v_channels=20,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=1,
        num_cross_attention_heads=1,
        self_attention_widening_factor=4,
        cross_attention_widening_factor=4,
        initializer_range=0.3,
        image_size=16,
        num_labels=3,
    )
    transformers.PerceiverForImageClassificationLearned(config).save_pretrained(folder)
    transformers.PerceiverImageProcessor(
        size={"height": 16, "width": 16}, crop_size={"height": 16, "width": 16}
    ).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of an image of twice the size, or the exception."""
    model = transformers.PerceiverForImageClassificationLearned.from_pretrained(folder).eval()
    with torch.no_grad():
        out = model(inputs=torch.zeros(1, 3, 32, 32), interpolate_pos_encoding=True)
    return [*out.logits.shape]
