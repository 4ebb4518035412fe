"""Sizes of tiny models, as most cases have them."""

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GROUPED = SMALL | {"num_key_value_heads": 2}
"""Two heads of the queries share one of the keys and values."""
PLAIN_TEXT = SMALL | {"vocab_size": 64, "initializer_range": 0.3}
TEXT = GROUPED | PLAIN_TEXT
TEXT_128 = TEXT | {"vocab_size": 128}
TOWER = SMALL | {"num_hidden_layers": 1}
"""The part of a model that reads images or sounds."""
QWEN_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 4,
    "out_hidden_size": 32,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
QWEN2_5_VISION = QWEN_VISION | {"depth": 2, "window_size": 16, "fullatt_block_indexes": [1]}
QWEN_IDS = {"video_token_id": 121, "vision_start_token_id": 122, "vision_end_token_id": 123}
QWEN_AUDIO = {
    "model_type": "qwen2_audio_encoder",
    "d_model": 32,
    "encoder_layers": 1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "num_mel_bins": 16,
}
GPT2 = {
    "vocab_size": 64,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "initializer_range": 0.3,
}
BART = {
    "d_model": 32,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
T5 = {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_heads": 4}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
WHISPER = {
    **BART,
    **IDS,
    "num_mel_bins": 8,
    "init_std": 0.3,
    "decoder_start_token_id": 3,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
DEEPSEEK = {
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}
LLAMA4: dict[str, object] = {
    **TEXT_128,
    "intermediate_size": 32,
    "intermediate_size_mlp": 48,
    "head_dim": 8,
    "moe_layers": [],
    "max_position_embeddings": 64,
}
"""Without experts."""
GEMMA4_TEXT = {
    **TEXT,
    "vocab_size_per_layer_input": 64,
    "hidden_size_per_layer_input": 16,
    "num_kv_shared_layers": 0,
    "layer_types": ["sliding_attention", "full_attention"],
    "head_dim": 8,
    "global_head_dim": 8,
    "sliding_window": 16,
}
GEMMA4_VISION = {
    **TOWER,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "patch_size": 8,
    "pooling_kernel_size": 2,
}
MIMI = {
    "audio_channels": 1,
    "hidden_size": 32,
    "num_filters": 8,
    "num_residual_layers": 1,
    "upsampling_ratios": [8, 4],
    "codebook_size": 64,
    "vector_quantization_hidden_dimension": 64,
    "codebook_dim": 64,
    "upsample_groups": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "sliding_window": 4,
}
GEMMA_IDS = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
