"""Qwen2-VL counts the positions behind a cache from the ids that the cache holds.

https://github.com/huggingface/transformers/pull/43952
"""

import json
import sys

import tokenizers
import torch
import transformers

CASE = {
    "before": "5.1.0",
    "after": "5.2.0",
    "made": "5.1.0",
    "packages": ("torchvision",),
    "symptom": "Qwen2-VL of 5.2 answers otherwise in a second generate() of text over the first one's cache",
    "area": "generation",
    "signals": ("greedy",),
    "findings": ("SB705", "SB916"),
    "says": (r"rope_deltas", r"position_ids"),
    "source": ("_prepare_position_ids_for_generation", "get_rope_index", "rope_deltas"),
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
    """Return the ids of a second answer, over the cache of the first and anew."""
    model = transformers.Qwen2VLForConditionalGeneration.from_pretrained(folder).eval()
    image = model.config.image_token_id
    start = model.config.vision_start_token_id
    ids = torch.tensor([[70, 71, start, image, image, image, image, 72, 73]])
    pixels = torch.rand(16, 96, generator=torch.Generator().manual_seed(0))
    picture = {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, 4, 4]])}
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    first = model.generate(ids, **picture, **options, return_dict_in_generate=True)
    more = torch.cat([first.sequences, torch.tensor([[74, 75, 76]])], 1)
    again = model.generate(more, past_key_values=first.past_key_values, **options)
    anew = model.generate(more, **picture, **options)
    return [answer[0, more.shape[1] :].tolist() for answer in (again, anew)]


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
