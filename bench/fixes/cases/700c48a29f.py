"""The processor of Qwen3-VL takes a video of one frame."""

import numpy as np
import qwen2_vl
import transformers

CASE = {
    "packages": ("torchvision",),
    "symptom": "Qwen3-VL's processor raises ValueError for a video of one frame, and rounds odd numbers of frames down",
    "failure": "must be larger than temporal_factor",
    "says": (r"temporal_factor", r"one frame"),
    "source": ("Qwen3VLVideoProcessor", "video_processing_qwen3_vl.py", "smart_resize"),
}
SIZE = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64 * 8}


def make(folder: str) -> None:
    """Write a tiny Qwen3-VL with its processor."""
    patches = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "size": SIZE}
    transformers.Qwen3VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessorFast(**patches),
        tokenizer=qwen2_vl.tokenizer(),
        video_processor=transformers.Qwen3VLVideoProcessor(**patches),
    ).save_pretrained(folder)
    text = qwen2_vl.TEXT | {
        "head_dim": 8,
        "rope_scaling": {
            "rope_type": "default",
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "out_hidden_size": 32,
        "patch_size": 8,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **qwen2_vl.IDS)
    transformers.Qwen3VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the grids of videos of one frame and of five."""
    processor = transformers.AutoProcessor.from_pretrained(folder).video_processor
    grids = []
    for frames in (1, 5):
        video = np.random.default_rng(0).integers(0, 255, (frames, 32, 32, 3), dtype=np.uint8)
        try:
            inputs = processor([video], do_sample_frames=False, return_tensors="pt")
            grids.append(inputs["video_grid_thw"].tolist())
        except ValueError as error:
            grids.append(f"ValueError: {error}")
    return grids
