"""A batch of texts stays a batch if SmolVLM's image processor gives no rows and columns.

https://github.com/huggingface/transformers/pull/41871
"""

import json
import sys

import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image

CASE = {
    "before": "4.57.6",
    "after": "5.0.0",
    "made": "4.57.6",
    "symptom": "SmolVLM's processor raises IndexError for two texts with return_row_col_info=False",
    "area": "processor",
    "packages": ("torchvision", "num2words"),
    "findings": ("SB836", "SB932"),
    "failure": "list index out of range",
    "says": (r"image_rows", r"return_row_col_info", r"list index out of range"),
    "source": ("SmolVLMProcessor", "processing_smolvlm.py", "expand_text_with_image_tokens"),
}
SPECIAL = [
    "<pad>",
    "<|im_start|>",
    "<end_of_utterance>",
    "<unk>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
]


def make(folder: str) -> None:
    """Write a tiny SmolVLM that does not split images, with its processor."""
    torch.manual_seed(0)
    words = [
        *SPECIAL,
        *(f"<row_{r}_col_{c}>" for r in (1, 2) for c in (1, 2)),
        "what",
        "is",
        "this",
        ":",
        "\n",
    ]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens(SPECIAL)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<|im_start|>",
        eos_token="<end_of_utterance>",
    )
    sizes = {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 32}}
    processor = transformers.SmolVLMProcessor(
        image_processor=transformers.SmolVLMImageProcessor(do_image_splitting=False, **sizes),
        tokenizer=tokenizer,
        video_processor=transformers.SmolVLMVideoProcessor(
            video_sampling={"max_frames": 4, "fps": 1, "video_size": {"longest_edge": 32}}, **sizes
        ),
        image_seq_len=4,
    )
    processor.save_pretrained(folder)
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
    }
    text = {
        "model_type": "llama",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
    }
    config = transformers.SmolVLMConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=vocab["<image>"],
        scale_factor=2,
        pad_token_id=0,
    )
    transformers.SmolVLMForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of rows that two texts with one image each become."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    texts = ["<image> what is this", "<image> this is"]
    rows = {}
    for info in (True, False):
        try:
            output = processor(
                text=texts, images=[[image], [image]], padding=True, return_row_col_info=info
            )
            rows[f"return_row_col_info={info}"] = len(output["input_ids"])
        except Exception as error:  # noqa: BLE001  what a user sees
            rows[f"return_row_col_info={info}"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return rows


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
