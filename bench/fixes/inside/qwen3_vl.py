"""A tiny Qwen3-VL with its processor, which several cases share."""

import qwen2_vl  # type: ignore[import-not-found]  # beside this file
import transformers

SIZE = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64 * 8}


def make(folder: str, temporal_patch_size: int = 2) -> None:
    """Write the model and its processor, with patches of ``temporal_patch_size`` frames."""
    patches = {
        "patch_size": 8,
        "merge_size": 2,
        "temporal_patch_size": temporal_patch_size,
        "size": SIZE,
    }
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
        "temporal_patch_size": temporal_patch_size,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **qwen2_vl.IDS)
    transformers.Qwen3VLForConditionalGeneration(config).save_pretrained(folder)
