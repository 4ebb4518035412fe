"""A tiny Qwen3-Omni that speaks, which several cases share."""

from __future__ import annotations

import torch
import transformers
from sizes import GROUPED, QWEN_VISION, TOWER  # type: ignore[import-not-found]  # beside this file

ROPE = {
    "rope_type": "default",
    "mrope_section": [2, 1, 1],
    "interleaved": True,
    "mrope_interleaved": True,
}
TEXT = GROUPED | {
    "vocab_size": 128,
    "head_dim": 8,
    "moe_intermediate_size": 24,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "rope_scaling": ROPE,
}
IDS = {
    "audio_token_id": 110,
    "image_token_id": 111,
    "video_token_id": 112,
    "vision_start_token_id": 113,
    "audio_start_token_id": 114,
}
TURNS = {"start": 123, "end": 124, "system": 125, "user": 126, "assistant": 127}
"""Tokens of turns."""


def make(folder: str) -> None:
    """Write it."""
    model = transformers.Qwen3OmniMoeForConditionalGeneration(config())
    for parameter in model.parameters():  # 5.5.0 leaves the talker's experts as the memory was
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    model.save_pretrained(folder)


def config() -> transformers.Qwen3OmniMoeConfig:
    """Return its config."""
    small = GROUPED | {"head_dim": 8, "num_hidden_layers": 1}
    return transformers.Qwen3OmniMoeConfig(
        thinker_config={
            "text_config": TEXT,
            "vision_config": {
                "depth": 1,
                **QWEN_VISION,
                "num_position_embeddings": 16,
                "deepstack_visual_indexes": [0],
            },
            "audio_config": {
                "num_mel_bins": 8,
                "encoder_layers": 1,
                "encoder_attention_heads": 4,
                "encoder_ffn_dim": 48,
                "d_model": 32,
                "max_source_positions": 64,
                "n_window": 4,
                "n_window_infer": 8,
                "output_dim": 32,
                "downsample_hidden_size": 8,
            },
            "position_id_per_seconds": 25,
            **IDS,
        },
        talker_config={
            # the last 1024 words of the talker are never spoken
            "text_config": TEXT | {"shared_expert_intermediate_size": 24, "vocab_size": 1124},
            "code_predictor_config": small
            | {"vocab_size": 32, "num_code_groups": 4, "use_sliding_window": False},
            "num_code_groups": 4,
            "thinker_hidden_size": 32,
            "accept_hidden_layer": 1,
            "spatial_merge_size": 2,
            "speaker_id": {"a": 100},
            "codec_nothink_id": 101,
            "codec_think_bos_id": 102,
            "codec_think_eos_id": 103,
            "codec_pad_id": 104,
            "codec_bos_id": 105,
            "codec_eos_token_id": 106,
            **IDS,
        },
        code2wav_config={
            "codebook_size": 32,
            **TOWER,
            "num_key_value_heads": 4,
            "num_quantizers": 4,
            "upsample_rates": (2, 2),
            "upsampling_ratios": (2, 2),
            "decoder_dim": 32,
        },
        enable_audio_output=True,
        tts_pad_token_id=120,
        tts_bos_token_id=121,
        tts_eos_token_id=122,
        im_start_token_id=TURNS["start"],
        im_end_token_id=TURNS["end"],
        system_token_id=TURNS["system"],
        user_token_id=TURNS["user"],
        assistant_token_id=TURNS["assistant"],
    )
