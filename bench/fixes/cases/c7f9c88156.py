"""The labels that Qwen3-ASR's processor makes for training are token ids."""

import numpy as np
import tokenizers
import transformers
from sizes import GROUPED

CASE = {
    "symptom": "Qwen3-ASR's processor gives the types of the tokens as labels, not their ids",
    "says": (r"output_labels", r"apply_transcription_request.*language"),
    "source": ("Qwen3ASRProcessor", "processing_qwen3_asr.py"),
}
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_pad|>",
]


def make(folder: str) -> None:
    """Write a tiny Qwen3-ASR with its processor."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: number for number, letter in enumerate(letters)}
    tokenizer = transformers.Qwen2Tokenizer(
        vocab=vocab,
        merges=[],
        additional_special_tokens=SPECIAL,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        extra_special_tokens={
            "audio_token": "<|audio_pad|>",
            "audio_bos_token": "<|audio_start|>",
            "audio_eos_token": "<|audio_end|>",
        },
    )
    processor = transformers.Qwen3ASRProcessor(
        feature_extractor=transformers.Qwen3ASRFeatureExtractor(feature_size=20),
        tokenizer=tokenizer,
    )
    processor.save_pretrained(folder)
    config = transformers.Qwen3ASRConfig(
        audio_config={
            "model_type": "qwen3_asr_encoder",
            "num_mel_bins": 20,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "d_model": 16,
            "output_dim": 32,
            "downsample_hidden_size": 4,
        },
        text_config={
            "model_type": "qwen3",
            "vocab_size": len(tokenizer),
            **GROUPED,
            "head_dim": 8,
            "initializer_range": 0.3,
        },
        audio_token_id=tokenizer.convert_tokens_to_ids("<|audio_pad|>"),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    transformers.Qwen3ASRForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the labels of the words of a text, and whether they are its ids."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    sound = np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    text = "<|audio_start|><|audio_pad|><|audio_end|>good day"
    output = processor(text=[text], audio=[sound], output_labels=True)
    labels, ids = output["labels"][0, -8:].tolist(), output["input_ids"][0, -8:].tolist()
    return {"labels are ids": labels == ids, "labels": labels}
