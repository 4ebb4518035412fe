"""Qwen2.5-Omni's processor takes a text that names a sound and comes without one."""

import qwen2_5_omni
import tokenizers
import transformers
from saved import edit

CASE = {
    "packages": ("torchvision",),
    "symptom": "Qwen2.5-Omni's processor raises StopIteration for a text with a token of a sound or an image and nothing else",
    "failure": "StopIteration",
    "says": (r"StopIteration",),
    "source": (
        "Qwen2_5OmniProcessor",
        "replace_multimodal_special_tokens",
        "processing_qwen2_5_omni.py",
    ),
}
MARKS = {
    "audio_token": "<|AUDIO|>",
    "image_token": "<|IMAGE|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}


ROPE = {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]}}


def make(folder: str) -> None:
    """Write a tiny Qwen2.5-Omni with its processor."""
    qwen2_5_omni.make(folder, ROPE, 24)
    alphabet = [chr(number) for number in range(ord("A"), ord("z") + 1)]
    words = ["<pad>", *MARKS.values(), "Ġ", *alphabet]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.Qwen2TokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<pad>",
        unk_token="<pad>",
        extra_special_tokens=MARKS,
    )
    images = transformers.Qwen2VLImageProcessor()
    transformers.Qwen2_5OmniProcessor(
        image_processor=images,
        video_processor=transformers.Qwen2VLVideoProcessor(),
        feature_extractor=transformers.WhisperFeatureExtractor(feature_size=16),
        tokenizer=tokenizer,
    ).save_pretrained(folder)
    # as on the hub: one file for images and sounds
    edit(folder, "preprocessor_config.json", **images.to_dict())


def observe(folder: str) -> object:
    """Return the ids of a text that names a sound, or the exception."""
    processor = transformers.Qwen2_5OmniProcessor.from_pretrained(folder)
    return [int(number) for number in processor(text="a <|AUDIO|> b")["input_ids"][0]]
