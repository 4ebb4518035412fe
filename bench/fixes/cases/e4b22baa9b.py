"""A chat template loads sounds at the rate of the processor."""

import pathlib
import wave

import numpy as np
import transformers
from sizes import GROUPED, QWEN_AUDIO
from tokens import SPACES, tokenizer_of

CASE = {
    "packages": ("librosa",),
    "symptom": "apply_chat_template reads a sound at 16 kHz though the feature extractor has another rate",
    "findings": ("SB819", "SB820"),
    "says": (r"sampling_rate",),
    "source": ("ProcessorMixin", "processing_utils.py"),
}
SPECIAL = ["<unk>", "<pad>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} {% for part in message['content'] %}"
    "{% if part['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>"
    "{% else %} {{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)
RATE = 8000


def make(folder: str) -> None:
    """Write a tiny Qwen2-Audio whose processor has a rate of 8 kHz."""
    words = [*SPECIAL, "user", "what", "is", "this"]
    tokenizer = tokenizer_of(
        words, SPACES, unk_token="<unk>", pad_token="<pad>", additional_special_tokens=SPECIAL[2:]
    )
    processor = transformers.Qwen2AudioProcessor(
        feature_extractor=transformers.WhisperFeatureExtractor(
            feature_size=16, sampling_rate=RATE, chunk_length=2, return_attention_mask=True
        ),
        tokenizer=tokenizer,
        chat_template=TEMPLATE,
    )
    processor.save_pretrained(folder)
    text = {"model_type": "qwen2", "vocab_size": 16, **GROUPED, "initializer_range": 0.3}
    audio = {**QWEN_AUDIO, "max_source_positions": 50}
    config = transformers.Qwen2AudioConfig(
        text_config=text, audio_config=audio, audio_token_index=2
    )
    transformers.Qwen2AudioForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the number of frames and of tokens of half a second."""
    path = str(pathlib.Path(folder, "sound.wav"))
    sound = np.random.default_rng(0).standard_normal(RATE // 2) * 1000
    with wave.open(path, "wb") as file:
        file.setparams((1, 2, RATE, len(sound), "NONE", ""))
        file.writeframes(sound.astype("<i2").tobytes())
    processor = transformers.AutoProcessor.from_pretrained(folder)
    parts = [{"type": "audio", "path": path}, {"type": "text", "text": "what is this"}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": parts}], tokenize=True, return_dict=True, return_tensors="pt"
    )
    return {
        "frames": int(inputs["feature_attention_mask"].sum()),
        "tokens": int((inputs["input_ids"] == 2).sum()),
    }
