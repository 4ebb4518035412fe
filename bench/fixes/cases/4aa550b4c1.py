"""Gemma 3n takes a sound: the mask is read from the output of the audio tower, not from its features."""

import torch
import transformers
from sizes import GEMMA_IDS, GROUPED

CASE = {
    "symptom": "every forward of Gemma 3n with a sound raises AttributeError: audio_mel_mask",
    "packages": ("timm", "torchvision"),
    "failure": "audio_mel_mask",
    "says": (r"audio_mel_mask",),
    "source": ("Gemma3nModel", "get_audio_features", "modeling_gemma3n.py"),
}
SOFT = 4


def make(folder: str) -> None:
    """Write a tiny Gemma 3n that sees and hears."""
    config = transformers.Gemma3nConfig(
        text_config={
            "vocab_size": 96,
            "vocab_size_per_layer_input": 64,
            **GROUPED,
            "hidden_size_per_layer_input": 16,
            "num_kv_shared_layers": 0,
            "layer_types": ["sliding_attention", "full_attention"],
            "head_dim": 8,
            "sliding_window": 16,
            "laurel_rank": 8,
            "altup_num_inputs": 2,
            "activation_sparsity_pattern": [0.0, 0.0],
            "initializer_range": 0.3,
            **GEMMA_IDS,
        },
        vision_config={
            "architecture": "test_efficientnet",
            "hidden_size": 64,
            "vocab_size": 16,
            "vocab_offset": 64,
        },
        audio_config={
            "vocab_size": 16,
            "vocab_offset": 80,
            "input_feat_size": 32,
            "hidden_size": 32,
            "conf_attention_chunk_size": 4,
            "conf_attention_context_left": 5,
            "conf_num_attention_heads": 4,
            "conf_num_hidden_layers": 1,
            "conf_reduction_factor": 2,
            "sscp_conv_channel_size": [8, 4],
        },
        audio_soft_tokens_per_image=SOFT,
        vision_soft_tokens_per_image=4,
        boi_token_id=4,
        eoi_token_id=65,
        image_token_id=66,
        boa_token_id=5,
        eoa_token_id=81,
        audio_token_id=82,
        initializer_range=0.3,
    )
    transformers.Gemma3nForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of a forward with a sound, or the exception."""
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    ids = torch.tensor([[2, 7, 5, *[82] * SOFT, 81, 8]])
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(1, 16, 32, generator=generator)
    mask = torch.ones(1, 16, dtype=torch.bool)
    with torch.no_grad():
        out = model(input_ids=ids, input_features=features, input_features_mask=mask)
    return list(out.logits.shape)
