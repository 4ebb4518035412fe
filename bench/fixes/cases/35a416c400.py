"""Idefics3's fast image processor takes images of two shapes that it does not split."""

import numpy as np
import transformers
from PIL import Image
from sizes import GROUPED, TOWER
from tokens import tokenizer_of

CASE = {
    "packages": ("torchvision",),
    "symptom": "Idefics3's fast image processor raises KeyError for images of two shapes where do_image_splitting is false",
    "failure": "KeyError: torch.Size",
    "says": (r"KeyError.*torch\.Size",),
    "source": ("Idefics3ImageProcessorFast", "image_processing_idefics3_fast.py", "reorder_images"),
}
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>", "<fake_token_around_image>"]
SPECIAL += ["<global-img>", "<end_of_utterance>"]
EDGE = {"longest_edge": 32}


def make(folder: str) -> None:
    """Write a tiny Idefics3 with a processor that does not split images."""
    words = [*SPECIAL, *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2))]
    words += ["what", "is", "this", ":", "\n"]
    tokenizer = tokenizer_of(
        words, added=SPECIAL, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    options = {"do_image_splitting": False, "size": EDGE, "max_image_size": EDGE}
    slow = transformers.Idefics3ImageProcessor(**options)
    transformers.Idefics3Processor(slow, tokenizer, image_seq_len=4).save_pretrained(folder)
    # the processor takes no fast one when it is made, and loads the one that its folder names
    transformers.Idefics3ImageProcessorFast(**options).save_pretrained(folder)
    config = transformers.Idefics3Config(
        vision_config={**TOWER, "image_size": 32, "patch_size": 8},
        text_config=GROUPED
        | {"model_type": "llama", "vocab_size": 64, "pad_token_id": 0, "initializer_range": 0.3},
        image_token_id=words.index("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    transformers.Idefics3ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the pixel values of two images, or the exception."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=True)
    shapes = ((24, 40, 3), (40, 24, 3))
    images = [Image.fromarray(np.full(shape, 200, np.uint8)) for shape in shapes]
    return [*processor(images, return_tensors="pt")["pixel_values"].shape]
