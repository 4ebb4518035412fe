"""GPT-2 takes what it kept of the encoder once.

https://github.com/huggingface/transformers/issues/39746
"""

import torch
import transformers
from sizes import GPT2, SMALL

CASE = {
    "before": "4.54.0",
    "after": "4.54.1",
    "symptom": "the keys that GPT-2 has of an image grow by one encoding with each token of a caption",
    "signals": ("decode", "generate", "cache"),
    "failure": "shape",
    "says": (r"cross", r"cache", r"generate"),
    "source": ("GPT2Attention", "GPT2Model", "modeling_gpt2.py", "VisionEncoderDecoderModel"),
}


def make(folder: str) -> None:
    """Write a tiny ViT with a GPT-2 that reads it."""
    vision = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8)
    text = transformers.GPT2Config(**GPT2)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text)
    config.decoder_start_token_id = 1
    config.pad_token_id = 0
    transformers.VisionEncoderDecoderModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the caption of an image and the number of its kept keys, or the exception."""
    model = transformers.VisionEncoderDecoderModel.from_pretrained(folder).eval()
    pixels = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)
    out = model.generate(
        pixel_values=pixels,
        max_new_tokens=4,
        do_sample=False,
        decoder_start_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
    )
    kept = out.past_key_values.cross_attention_cache
    return {"ids": out.sequences.tolist(), "keys": kept.get_seq_length()}
