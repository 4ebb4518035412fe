"""A tiny Qwen2.5-Omni with its voice, which several cases share."""

from __future__ import annotations

import pathlib

import torch
import transformers
from sizes import GROUPED  # type: ignore[import-not-found]  # beside this file


def make(folder: str, rope: dict[str, object], channels: int) -> None:
    """Write it, with settings of its rope as a release reads them, and the last channels of its voice's encoder."""
    text = {
        "vocab_size": 99,
        **GROUPED,
        **rope,
        "initializer_range": 0.3,
        "pad_token_id": 0,
    }
    tokens = {"audio_token_index": 1, "image_token_index": 2, "video_token_index": 3}
    thinker = {
        "text_config": text,
        "audio_config": {
            "d_model": 32,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 32,
            "encoder_layers": 1,
            "num_mel_bins": 20,
            "n_window": 100,
            "output_dim": 32,
        },
        "vision_config": {
            "depth": 1,
            "hidden_size": 32,
            "out_hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 4,
            "patch_size": 14,
            "fullatt_block_indexes": [0],
        },
        **tokens,
    }
    talker = {
        **{name: value for name, value in text.items() if name != "initializer_range"},
        **tokens,
        "embedding_size": 32,
        "head_dim": 8,
        "tts_text_start_token_id": 90,
        "tts_text_end_token_id": 91,
        "tts_text_pad_token_id": 92,
        "tts_codec_start_token_id": 93,
        "tts_codec_end_token_id": 94,
        "tts_codec_pad_token_id": 95,
        "tts_codec_mask_token_id": 96,
    }
    voice = {
        "dit_config": {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "head_dim": 16,
            "emb_dim": 16,
            "num_embeds": 99,
            "mel_dim": 8,
            "look_ahead_layers": [1],
            "look_backward_layers": [0],
            "enc_emb_dim": 8,
            "enc_dim": 8,
            "enc_channels": [8, 8, 8, 8, channels],
            "enc_attention_channels": 8,
            "enc_se_channels": 8,
        },
        "bigvgan_config": {
            "mel_dim": 8,
            "upsample_initial_channel": 64,
            "upsample_rates": [2, 2],
            "upsample_kernel_sizes": [4, 4],
        },
    }
    config = transformers.Qwen2_5OmniConfig(
        thinker_config=thinker, talker_config=talker, token2wav_config=voice
    )
    model = transformers.Qwen2_5OmniForConditionalGeneration(config)
    for name, parameter in model.token2wav.named_parameters():
        if "attn.to_" in name and parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    speaker = {"cond": torch.zeros(1, 8), "ref_mel": torch.zeros(1, 30, 8), "bos_token": 93}
    torch.save({"Chelsie": speaker}, pathlib.Path(folder, "spk_dict.pt"))
