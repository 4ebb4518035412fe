"""MusicGen takes more codes than it has positions in its table."""

import tokenizers
import torch
import transformers

CASE = {
    "symptom": "MusicGen raises AttributeError for more codes than max_position_embeddings",
    "findings": ("SB931", "SB932"),
    "failure": "has no attribute 'offset'",
    "says": (r"'offset'",),
    "source": ("MusicgenSinusoidalPositionalEmbedding", "modeling_musicgen.py"),
}


def make(folder: str) -> None:
    """Write a tiny MusicGen with its processor."""
    words = ["<pad>", "</s>", "<unk>", "what", "is", "this"]
    backend = tokenizers.Tokenizer(
        tokenizers.models.Unigram([(word, -1.0) for word in words], unk_id=2)
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.T5TokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_ids=0,
    )
    transformers.MusicgenProcessor(
        transformers.EncodecFeatureExtractor(sampling_rate=8000), tokenizer
    ).save_pretrained(folder)
    text = transformers.T5Config(
        vocab_size=32, d_model=32, d_ff=48, d_kv=8, num_layers=1, num_heads=4
    )
    audio = transformers.EncodecConfig(
        sampling_rate=8000,
        target_bandwidths=[20.0],
        num_filters=4,
        hidden_size=16,
        codebook_size=1024,
        codebook_dim=16,
        upsampling_ratios=[4, 4],
        num_lstm_layers=1,
    )
    decoder = transformers.MusicgenDecoderConfig(
        vocab_size=1024,
        max_position_embeddings=16,
        num_hidden_layers=2,
        ffn_dim=48,
        num_attention_heads=4,
        hidden_size=32,
        num_codebooks=4,
        pad_token_id=1024,
        bos_token_id=1024,
    )
    config = transformers.MusicgenConfig.from_sub_models_config(text, audio, decoder)
    transformers.MusicgenForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the logits of twenty codes."""
    model = transformers.MusicgenForConditionalGeneration.from_pretrained(folder).eval()
    codes = torch.arange(80).reshape(4, 20) % 16
    with torch.no_grad():
        outputs = model(input_ids=torch.arange(3, 6)[None], decoder_input_ids=codes)
    return list(outputs.logits.shape)
