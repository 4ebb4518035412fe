"""The processor of Qwen3-VL says when the frames of a video were taken."""

import numpy as np
import qwen2_vl
import transformers

CASE = {
    "packages": ("torchvision",),
    "area": "processor",
    "symptom": "Qwen3-VL's processor puts other seconds before frames where a patch merges four of them",
    "says": (r"seconds", r"timestamps?", r"video.*input_ids", r"input_ids.*video"),
    "source": ("Qwen3VLProcessor", "processing_qwen3_vl.py", "_calculate_timestamps"),
}
SIZE = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64 * 8}


def make(folder: str) -> None:
    """Write a tiny Qwen3-VL whose patches have four frames."""
    patches = {"patch_size": 8, "merge_size": 2, "size": SIZE}
    transformers.Qwen3VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessorFast(**patches, temporal_patch_size=4),
        tokenizer=qwen2_vl.tokenizer(),
        video_processor=transformers.Qwen3VLVideoProcessor(**patches, temporal_patch_size=4),
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
        "temporal_patch_size": 4,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **qwen2_vl.IDS)
    transformers.Qwen3VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the text that a video of eight frames, two of a second, becomes."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    video = np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3), dtype=np.uint8)
    inputs = processor(
        text="<|vision_start|><|video_pad|><|vision_end|>",
        videos=[video],
        do_sample_frames=False,
        video_metadata=[{"fps": 2.0, "total_num_frames": 8, "frames_indices": [*range(8)]}],
    )
    return processor.tokenizer.decode(inputs["input_ids"][0])
