"""The video processor of SmolVLM resizes with the filter of its settings.

https://github.com/huggingface/transformers/pull/45258
"""

import json
import sys

import numpy as np
import tokenizers
import torch
import transformers

CASE = {
    "before": "5.5.4",
    "after": "5.6.0",
    "made": "5.6.0",
    "symptom": "SmolVLM resizes videos with bilinear instead of its own filter: other pixel values",
    "area": "processor",
    "packages": ("torchvision", "num2words"),
    "findings": ("SB833", "SB839"),
    "signals": ("pixel_values",),
    "says": (r"(?i)bilinear|bicubic|lanczos",),
    "source": ("SmolVLMVideoProcessor", "video_processing_smolvlm.py"),
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
    """Write a tiny SmolVLM with tokenizer, image processor and video processor."""
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
    processor = transformers.SmolVLMProcessor(
        image_processor=transformers.SmolVLMImageProcessor(
            size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
        ),
        tokenizer=tokenizer,
        video_processor=transformers.SmolVLMVideoProcessor(
            size={"longest_edge": 32},
            max_image_size={"longest_edge": 32},
            video_sampling={"max_frames": 4, "fps": 1, "video_size": {"longest_edge": 32}},
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
    """Return the filter that computes the nearest pixel values to those of the processor."""
    processor = transformers.SmolVLMVideoProcessor.from_pretrained(folder)
    video = np.random.default_rng(0).integers(0, 255, (2, 56, 56, 3), dtype=np.uint8)
    options = {"return_tensors": "pt", "do_normalize": False, "do_pad": False, "do_rescale": False}
    given = processor(videos=[video], **options)["pixel_values"].float()
    frames = torch.tensor(video).permute(0, 3, 1, 2)
    size = list(given.shape[-2:])
    distances = {}
    for name in ("bilinear", "bicubic"):
        resized = torch.nn.functional.interpolate(
            frames.float(), size, mode=name, antialias=True
        ).clamp(0, 255)
        distances[name] = float((given.reshape(resized.shape) - resized).abs().mean())
    return {"settings": int(processor.resample), "computed": min(distances, key=distances.get)}


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
