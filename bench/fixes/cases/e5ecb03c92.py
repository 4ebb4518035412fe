"""The pipeline for text to audio runs with CSM."""

import tokenizers
import torch
import transformers
from sizes import MIMI

CASE = {
    "symptom": "pipeline('text-to-audio') of CSM raises AttributeError: 'list' object has no attribute 'to'",
    "area": "generation",
    "says": (r"pipeline.*(text-to-audio|text-to-speech|TextToAudio)", r"TextToAudioPipeline"),
    "source": ("TextToAudioPipeline", "text_to_audio.py", "tokenization_auto.py"),
}


def make(folder: str) -> None:
    """Write a tiny CSM with its tokenizer."""
    words = ["<unk>", "<s>", "<pad>", "</s>", "good", "day"]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(
            {word: number for number, word in enumerate(words)}, unk_token="<unk>"
        )
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        bos_token="<s>",
        pad_token="<pad>",
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)
    small = {
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
    }
    config = transformers.CsmConfig(
        depth_decoder_config=small
        | {
            "num_codebooks": 4,
            "backbone_hidden_size": 32,
            "vocab_size": 67,
            "hidden_size": 32,
            "intermediate_size": 48,
            "max_position_embeddings": 8,
        },
        codec_config={"model_type": "mimi", **MIMI, "num_quantizers": 4},
        num_codebooks=4,
        vocab_size=67,
        text_vocab_size=16,
        hidden_size=32,
        intermediate_size=48,
        max_position_embeddings=64,
        bos_token_id=1,
        pad_token_id=2,
        eos_token_id=3,
        codebook_pad_token_id=65,
        codebook_eos_token_id=66,
        **small,
    )
    transformers.CsmForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the sampling rate of the pipeline's audio and whether it has sound, or the exception."""
    torch.manual_seed(1)
    try:
        pipe = transformers.pipeline("text-to-audio", model=folder)
        options = {"output_audio": True, "max_new_tokens": 4, "do_sample": False}
        output = pipe("good day", generate_kwargs=options)
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return {"sampling rate": output["sampling_rate"], "sounds": len(output["audio"])}
