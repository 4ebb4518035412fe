"""The processor of Mistral 3 cuts images into patches that can be merged."""

import numpy as np
import transformers
from PIL import Image
from sizes import GROUPED, TOWER
from tokens import NAMED, SPACES, tokenizer_of

CASE = {
    "before": "4.50.2",
    "after": "4.50.3",
    "symptom": "PixtralProcessor with spatial_merge_size 2 resizes images to an odd number of patches",
    "findings": ("SB830", "SB833", "SB835"),
    "source": ("PixtralProcessor", "processing_pixtral.py"),
}
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]


def make(folder: str) -> None:
    """Write a tiny Mistral 3 with its processor."""
    words = [*SPECIAL, "what", "is", "this"]
    tokenizer = tokenizer_of(words, SPACES, additional_special_tokens=SPECIAL[4:], **NAMED)
    processor = transformers.PixtralProcessor(
        image_processor=transformers.PixtralImageProcessor(
            size={"longest_edge": 64}, patch_size={"height": 4, "width": 4}
        ),
        tokenizer=tokenizer,
        patch_size=4,
        spatial_merge_size=2,
    )
    processor.save_pretrained(folder)
    config = transformers.Mistral3Config(
        text_config={
            "model_type": "mistral",
            "vocab_size": 16,
            **GROUPED,
            "head_dim": 8,
            "initializer_range": 0.3,
        },
        vision_config={
            "model_type": "pixtral",
            **TOWER,
            "head_dim": 8,
            "image_size": 64,
            "patch_size": 4,
        },
        image_token_index=4,
        spatial_merge_size=2,
    )
    transformers.Mistral3ForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the sizes that two images get and the number of their tokens."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 36, 20, 3), dtype=np.uint8)
    seen = []
    for image in (pixels[0], pixels[1][:28]):
        inputs = processor(images=[Image.fromarray(image)], text="[IMG] what", return_tensors="pt")
        tokens = int((inputs["input_ids"] == 4).sum())
        seen.append({"size": [*inputs["pixel_values"][0].shape[-2:]], "tokens": tokens})
    return seen
