"""The processor of Qwen2.5-VL takes the seconds of a video's grid from the video's metadata.

https://github.com/huggingface/transformers/pull/42009
"""

import json
import sys

import numpy as np
import tokenizers
import torch
import transformers

CASE = {
    "before": "4.57.6",
    "after": "5.0.0",
    "made": "4.57.6",
    "packages": ("torchvision",),
    "symptom": "Qwen2.5-VL takes every video for one of two frames a second, whatever its metadata say",
    "area": "processor",
    "signals": ("inputs",),
    "findings": ("SB833",),
    "says": (r"second_per_grid_ts",),
    "source": ("Qwen2_5_VLProcessor", "processing_qwen2_5_vl.py", "sampled_fps"),
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
    """Write a tiny Qwen2.5-VL with its processor."""
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
    transformers.Qwen2_5_VLProcessor(
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
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "out_hidden_size": 32,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 16,
        "fullatt_block_indexes": [1],
        "tokens_per_second": 4,
    }
    config = transformers.Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=vocab["<|image_pad|>"],
        video_token_id=vocab["<|video_pad|>"],
        vision_start_token_id=vocab["<|vision_start|>"],
        vision_end_token_id=vocab["<|vision_end|>"],
    )
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the seconds of a grid of a video of one frame a second: two frames make a grid."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    frames = np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3), dtype=np.uint8)
    metadata = {
        "fps": 1.0,
        "total_num_frames": 8,
        "duration": 8.0,
        "frames_indices": list(range(8)),
    }
    inputs = processor(
        text=["<|vision_start|><|video_pad|><|vision_end|>what is this?"],
        videos=[frames],
        video_metadata=[metadata],
        do_sample_frames=False,
        return_tensors="pt",
    )
    return {"seconds": [float(second) for second in inputs["second_per_grid_ts"]]}


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
