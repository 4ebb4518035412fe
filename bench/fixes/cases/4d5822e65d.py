"""A video that is given to SmolVLM's chat template is sampled, as its processor says.

https://github.com/huggingface/transformers/pull/39147
"""

import json
import sys
from pathlib import Path

import av
import numpy as np
import tokenizers
import torch
import transformers

CASE = {
    "before": "4.53.0",
    "after": "4.53.1",
    "made": "4.53.0",
    "symptom": "SmolVLM's chat template feeds every frame of a video, and not as many as the processor samples",
    "area": "processor",
    "packages": ("torchvision", "num2words", "av"),
    "says": (r"apply_chat_template.*(frames|pixel_values)",),
    "source": ("SmolVLMProcessor", "processing_smolvlm.py"),
}
SPECIAL = [
    "<pad>",
    "<|im_start|>",
    "<end_of_utterance>",
    "<unk>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
]


def make(folder: str) -> None:
    """Write a tiny SmolVLM that does not split images, with its processor."""
    torch.manual_seed(0)
    words = [
        *SPECIAL,
        *(f"<row_{r}_col_{c}>" for r in (1, 2) for c in (1, 2)),
        "what",
        "is",
        "this",
        ":",
        "\n",
    ]
    vocab = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens(SPECIAL)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<|im_start|>",
        eos_token="<end_of_utterance>",
    )
    sizes = {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 32}}
    processor = transformers.SmolVLMProcessor(
        image_processor=transformers.SmolVLMImageProcessor(do_image_splitting=False, **sizes),
        tokenizer=tokenizer,
        video_processor=transformers.SmolVLMVideoProcessor(
            video_sampling={"max_frames": 4, "fps": 1, "video_size": {"longest_edge": 32}}, **sizes
        ),
        image_seq_len=4,
    )
    processor.save_pretrained(folder)
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
    }
    text = {
        "model_type": "llama",
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
    }
    config = transformers.SmolVLMConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=vocab["<image>"],
        scale_factor=2,
        pad_token_id=0,
    )
    transformers.SmolVLMForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the shape of the pixel values of a chat with a video of 24 frames in 6 seconds."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    film = Path(folder) / "film.mp4"
    write(film)
    content = [{"type": "video", "path": str(film)}, {"type": "text", "text": "what is this"}]
    try:
        output = processor.apply_chat_template(
            [{"role": "user", "content": content}],
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            video_load_backend="pyav",
        )
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return list(output["pixel_values"].shape)


def write(film: Path) -> None:
    """Write a video of 24 frames, 4 a second."""
    numbers = np.random.default_rng(0)
    with av.open(str(film), "w") as container:
        stream = container.add_stream("mpeg4", rate=4)
        stream.width = stream.height = 32
        for _ in range(24):
            pixels = numbers.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


if __name__ == "__main__":
    command, path = sys.argv[1:]
    print(json.dumps({"make": make, "observe": observe}[command](path)))
