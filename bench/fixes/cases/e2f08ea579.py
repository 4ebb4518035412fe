"""enable_input_require_grads lets gradients reach the image tower of Qwen2-VL.

https://github.com/huggingface/transformers/pull/41993
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
    "packages": ("torchvision",),
    "symptom": "weights in Qwen2-VL's image tower get no gradient under gradient checkpointing",
    "area": "computation",
    "signals": ("gradients",),
    "findings": ("SB844", "SB849"),
    "says": (r"enable_input_require_grads",),
    "source": ("enable_input_require_grads",),
}
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PATCHES = {
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 64,
    "max_pixels": 256,
}


def make(folder: str) -> None:
    """Write a tiny Qwen2-VL with its processor."""
    torch.manual_seed(0)
    words = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *SPECIAL]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.Qwen2TokenizerFast(
        tokenizer_object=backend,
        additional_special_tokens=SPECIAL,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    transformers.Qwen2VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(**PATCHES),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(**PATCHES),
    ).save_pretrained(folder)
    text = {
        "vocab_size": len(words),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
        "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]},
    }
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": 32,
        "num_heads": 4,
        "mlp_ratio": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    config = transformers.Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=vocab["<|image_pad|>"],
        video_token_id=vocab["<|video_pad|>"],
        vision_start_token_id=vocab["<|vision_start|>"],
        vision_end_token_id=vocab["<|vision_end|>"],
    )
    transformers.Qwen2VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the parts whose attention gets a gradient when all other weights are frozen."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.Qwen2VLForConditionalGeneration.from_pretrained(folder).train()
    trained = {}
    for name, weight in model.named_parameters():
        wanted = name.endswith(("qkv.weight", "q_proj.weight"))
        weight.requires_grad_(wanted)
        if wanted:
            trained[name] = weight
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.enable_input_require_grads()
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    inputs = processor(
        images=[Image.fromarray(pixels)],
        text=["<|vision_start|><|image_pad|><|vision_end|>what is this?"],
        return_tensors="pt",
    )
    model(**inputs, labels=inputs["input_ids"], use_cache=False).loss.backward()
    return sorted(name for name, weight in trained.items() if weight.grad is not None)


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
