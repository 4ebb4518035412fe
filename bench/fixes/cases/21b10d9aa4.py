"""A processor leaves out what its processor_config.json has and its class does not take."""

import json
from pathlib import Path

import transformers
from sizes import GROUPED, QWEN_AUDIO
from tokens import SPACES, tokenizer_of

CASE = {
    "symptom": "a processor_config.json with one key that its class does not take, as other releases save, raises TypeError",
    "area": "processor",
    "findings": ("SB836",),
    "failure": "unexpected keyword argument",
    "says": (r"unexpected keyword argument",),
    "source": ("from_args_and_dict", "ProcessorMixin", "processing_utils.py"),
}
SPECIAL = ["<unk>", "<pad>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]


def make(folder: str) -> None:
    """Write a tiny Qwen2-Audio whose processor's file has one more key."""
    words = [*SPECIAL, "user", "what", "is", "this"]
    tokenizer = tokenizer_of(
        words, SPACES, unk_token="<unk>", pad_token="<pad>", additional_special_tokens=SPECIAL[2:]
    )
    transformers.Qwen2AudioProcessor(
        feature_extractor=transformers.WhisperFeatureExtractor(
            feature_size=16, chunk_length=1, return_attention_mask=True
        ),
        tokenizer=tokenizer,
    ).save_pretrained(folder)
    path = Path(folder, "processor_config.json")
    values = json.loads(path.read_text("utf-8")) if path.exists() else {}
    values |= {"processor_class": "Qwen2AudioProcessor", "audio_pad_token": "<pad>"}
    path.write_text(json.dumps(values), "utf-8")
    text = {"model_type": "qwen2", "vocab_size": 16, **GROUPED, "initializer_range": 0.3}
    audio = {**QWEN_AUDIO, "max_source_positions": 50}
    config = transformers.Qwen2AudioConfig(
        text_config=text, audio_config=audio, audio_token_index=2
    )
    transformers.Qwen2AudioForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class of the processor, or the exception."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    return type(processor).__name__
