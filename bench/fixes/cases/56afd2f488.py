"""Mimi keeps the flags of its codebooks in float32."""

import torch
import transformers

CASE = {
    "symptom": "a Mimi that is loaded in float16 has the buffer initialized of its codebooks in float16 and not in float32",
    "signals": ("buffers", "weights"),
    "says": (r"codebook\.initialized",),
    "source": ("MimiEuclideanCodebook", "modeling_mimi.py", "codebook.initialized"),
}


def make(folder: str) -> None:
    """Write a tiny Mimi."""
    config = transformers.MimiConfig(
        hidden_size=16,
        num_filters=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=16,
        codebook_size=8,
        codebook_dim=8,
        vector_quantization_hidden_dimension=8,
        upsample_groups=16,
        num_quantizers=3,
        num_semantic_quantizers=1,
        sliding_window=8,
        upsampling_ratios=[4, 2],
        frame_rate=1500,
    )
    transformers.MimiModel(config).save_pretrained(folder)
    transformers.EncodecFeatureExtractor().save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the dtypes of the flags of a model in float16."""
    model = transformers.MimiModel.from_pretrained(folder, torch_dtype=torch.float16)
    return sorted(
        {
            str(buffer.dtype)
            for name, buffer in model.named_buffers()
            if name.endswith("initialized")
        }
    )
