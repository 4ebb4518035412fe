"""The processor of Mistral 3 cuts images into patches that can be merged.

https://github.com/huggingface/transformers/pull/37019
"""

import json
import sys

import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image

CASE = {
    "before": "4.50.2",
    "after": "4.50.3",
    "made": "4.50.2",
    "symptom": "PixtralProcessor with spatial_merge_size 2 resizes images to an odd number of patches",
    "area": "processor",
    "findings": ("SB830", "SB833", "SB835"),
    "source": ("PixtralProcessor", "processing_pixtral.py"),
}
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]


def make(folder: str) -> None:
    """Write a tiny Mistral 3 with its processor."""
    torch.manual_seed(0)
    words = [*SPECIAL, "what", "is", "this"]
    model = tokenizers.models.WordLevel(
        {word: number for number, word in enumerate(words)}, unk_token="<unk>"
    )
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=SPECIAL[4:],
    )
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
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "initializer_range": 0.3,
        },
        vision_config={
            "model_type": "pixtral",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
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


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
