"""Gemma 3n takes an image without a sound."""

import numpy as np
import torch
import transformers
from PIL import Image
from tokens import MARKS, SPACES, tokenizer_of

CASE = {
    "before": "4.55.0",
    "after": "4.55.1",
    "packages": ("timm", "torchvision"),
    "symptom": "Gemma 3n with an image or a sound: TypeError: get_placeholder_mask() missing 1 argument",
    "findings": ("SB931", "SB932"),
    "failure": "get_placeholder_mask() missing 1 required positional argument",
    "says": (r"get_placeholder_mask",),
    "source": ("get_placeholder_mask", "Gemma3nModel", "modeling_gemma3n.py"),
}
TOKENS = {
    "boi_token": "<start_of_image>",
    "boa_token": "<start_of_audio>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
    "eoa_token": "<end_of_audio>",
    "audio_token": "<audio_soft_token>",
}
TEXT, OF_IMAGES, OF_SOUNDS = 16, 8, 8
SIDE, IMAGE_TOKENS, AUDIO_TOKENS = 64, 4, 8


def make(folder: str) -> None:
    """Write a tiny Gemma 3n with its processor."""
    words = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_image>", "<start_of_audio>"]
    words += ["what", "is", "this"]
    words += [f"<unused{number}>" for number in range(len(words), TEXT)]
    words += ["<end_of_image>", "<image_soft_token>"]
    words += [f"<unused{number}>" for number in range(len(words), TEXT + OF_IMAGES)]
    words += ["<end_of_audio>", "<audio_soft_token>"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(words, SPACES, **MARKS, extra_special_tokens=TOKENS)
    transformers.Gemma3nProcessor(
        feature_extractor=transformers.Gemma3nAudioFeatureExtractor(feature_size=32),
        image_processor=transformers.SiglipImageProcessorFast(
            size={"height": SIDE, "width": SIDE}, do_normalize=False
        ),
        tokenizer=tokenizer,
        audio_seq_length=AUDIO_TOKENS,
        image_seq_length=IMAGE_TOKENS,
    ).save_pretrained(folder)
    ids = {name.replace("_token", "_token_id"): vocab[word] for name, word in TOKENS.items()}
    config = transformers.Gemma3nConfig(
        text_config={
            "vocab_size": TEXT + OF_IMAGES + OF_SOUNDS,
            "vocab_size_per_layer_input": TEXT,
            "hidden_size": 32,
            "hidden_size_per_layer_input": 16,
            "intermediate_size": 48,
            "num_hidden_layers": 4,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "activation_sparsity_pattern": [0.0] * 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "sliding_window": 16,
            "laurel_rank": 8,
            "altup_num_inputs": 2,
            "initializer_range": 0.3,
        },
        vision_config={
            "architecture": "test_efficientnet",
            "hidden_size": 256,
            "vocab_size": OF_IMAGES,
            "vocab_offset": TEXT,
        },
        audio_config={
            "input_feat_size": 32,
            "hidden_size": 32,
            "conf_num_attention_heads": 4,
            "conf_num_hidden_layers": 2,
            "sscp_conv_channel_size": (16, 8),
            "conf_conv_kernel_size": 3,
            "conf_attention_chunk_size": 4,
            "conf_attention_context_left": 5,
            "vocab_size": OF_SOUNDS,
            "vocab_offset": TEXT + OF_IMAGES,
        },
        audio_soft_tokens_per_image=AUDIO_TOKENS,
        vision_soft_tokens_per_image=IMAGE_TOKENS,
        **ids,
    )
    transformers.Gemma3nForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a question on an image."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.Gemma3nForConditionalGeneration.from_pretrained(folder).eval()
    pixels = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
    inputs = processor(
        images=[Image.fromarray(pixels)],
        text="<image_soft_token> what is this",
        return_tensors="pt",
    )
    with torch.no_grad():
        return list(model(**inputs, use_cache=False).logits.shape)
