"""GLM-4V takes the timestamps of a video's frames from those that it has sampled.

https://github.com/huggingface/transformers/pull/40696
"""

import numpy as np
import transformers
from sizes import GROUPED
from tokens import tokenizer_of
from transformers.video_utils import VideoMetadata

CASE = {
    "before": "4.56.0",
    "after": "4.56.1",
    "made": "4.56.0",
    "symptom": "GLM-4V's processor raises TypeError for a video that comes as an array with its frames per second",
    "area": "processor",
    "packages": ("torchvision",),
    "signals": ("inputs", "processor"),
    "failure": "'NoneType' object is not iterable",
    "says": (r"VideoMetadata", r"frames_indices", r"'NoneType' object is not iterable"),
    "source": (
        "timestamps",
        "VideoMetadata",
        "_decode_and_sample_videos",
        "video_utils.py",
        "video_processing_utils.py",
    ),
}
SPECIAL = [
    "<pad>",
    "</s>",
    "<unk>",
    "<|image|>",
    "<|video|>",
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
]
PATCH = 14


def make(folder: str) -> None:
    """Write a tiny GLM-4V with its processor."""
    words = [*SPECIAL, "what", "is", "this", "image", "?", "0", "1", "2", "3", "4"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(
        words, added=SPECIAL, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    # both edges count the pixels of both frames of a patch
    size = {"shortest_edge": 28 * 28, "longest_edge": 2 * 56 * 56}
    transformers.Glm4vProcessor(
        image_processor=transformers.Glm4vImageProcessor(size=size),
        video_processor=transformers.Glm4vVideoProcessor(size=size),
        tokenizer=tokenizer,
    ).save_pretrained(folder)
    ids = {
        "image_token_id": "<|image|>",
        "video_token_id": "<|video|>",
        "image_start_token_id": "<|begin_of_image|>",
        "image_end_token_id": "<|end_of_image|>",
        "video_start_token_id": "<|begin_of_video|>",
        "video_end_token_id": "<|end_of_video|>",
    }
    config = transformers.Glm4vConfig(
        text_config={
            "vocab_size": 64,
            **GROUPED,
            "max_position_embeddings": 2048,
            "initializer_range": 0.3,
            "rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 2]},
            "pad_token_id": 0,
            "eos_token_id": 1,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "out_hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 4,
            "image_size": 56,
            "patch_size": PATCH,
        },
        **{name: vocab[word] for name, word in ids.items()},
    )
    transformers.Glm4vForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the grid of a video and its number of ids, or the exception, per kind of metadata."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    video = np.stack([np.full((56, 56, 3), 10 * place, np.uint8) for place in range(16)])
    facts = {"total_num_frames": len(video), "fps": 4.0, "duration": 4.0}
    text = "<|begin_of_video|><|video|><|end_of_video|> what is this ?"
    seen = {}
    for name, metadata in {
        "dict": [facts],
        "VideoMetadata": VideoMetadata(**facts),
        "all frames": [facts | {"frames_indices": list(range(len(video)))}],
    }.items():
        try:
            inputs = processor(
                text=text, videos=[video], video_metadata=metadata, return_tensors="pt"
            )
        except Exception as error:  # noqa: BLE001  what a user sees
            seen[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        ids = inputs["input_ids"][0].tolist()
        stamps = [word for word in processor.tokenizer.convert_ids_to_tokens(ids) if word.isdigit()]
        seen[name] = {"grid": inputs["video_grid_thw"].tolist(), "seconds": stamps}
    return seen
