"""GOT-OCR2's image processor counts the patches that it makes of a small image."""

import numpy as np
import transformers
from PIL import Image
from sizes import TEXT
from tokens import NAMED, tokenizer_of

CASE = {
    "packages": ("torchvision",),
    "symptom": "GOT-OCR2's image processor counts two patches for an image that is not cut and becomes one",
    "says": (r"get_number_of_image_patches", r"num_image_(patches|tokens)"),
    "source": ("get_number_of_image_patches", "GotOcr2ImageProcessor", "image_processing_got_ocr2"),
}
SPECIAL = [*NAMED.values(), "<img>", "</img>", "<imgpad>", "<|im_start|>", "<|im_end|>"]
SIZE = {"height": 32, "width": 32}


def make(folder: str) -> None:
    """Write a tiny GOT-OCR2 with a processor that cuts images."""
    words = [*SPECIAL, "what", "is", "this", "OCR", ":", "user", "assistant"]
    tokenizer = tokenizer_of(words, added=SPECIAL, **NAMED)
    image_processor = transformers.GotOcr2ImageProcessorFast(size=SIZE, crop_to_patches=True)
    transformers.GotOcr2Processor(image_processor, tokenizer).save_pretrained(folder)
    config = transformers.GotOcr2Config(
        vision_config={
            "hidden_size": 32,
            "output_channels": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 4,
            "window_size": 2,
            "global_attn_indexes": [0],
            "mlp_dim": 48,
        },
        text_config={"model_type": "qwen2", **TEXT},
        image_token_index=words.index("<imgpad>"),
        image_seq_length=4,
        pad_token_id=0,
    )
    transformers.GotOcr2ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how many patches it counts for an image, and how many it makes of it."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    image = Image.fromarray(np.full((32, 32, 3), 200, np.uint8))
    made = processor(image, return_tensors="pt")["num_patches"]
    counted = processor.get_number_of_image_patches(32, 32, {})
    return {"counted": counted, "made": [int(number) for number in made]}
