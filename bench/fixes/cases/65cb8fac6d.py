"""The hidden states of Qwen3-VL that a user gets are those of the layers."""

import torch
import transformers
from sizes import QWEN_IDS, QWEN_VISION

CASE = {
    "symptom": "hidden_states of Qwen3-VL hold image features that are added in place to a layer's output",
    "signals": ("hidden_states",),
    "says": (r"_deepstack_process",),
    "source": ("_deepstack_process", "modeling_qwen3_vl.py"),
}
IMAGE = 120


def make(folder: str) -> None:
    """Write a tiny Qwen3-VL with a deepstack of one layer."""
    text = {
        "vocab_size": 128,
        "pad_token_id": 0,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "initializer_range": 0.3,
        "rope_scaling": {
            "rope_type": "default",
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": 2,
        **QWEN_VISION,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
        "initializer_range": 0.3,
    }
    config = transformers.Qwen3VLConfig(
        text_config=text, vision_config=vision, image_token_id=IMAGE, **QWEN_IDS
    )
    transformers.Qwen3VLForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether a hidden state is what its layer gave."""
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(folder).eval()
    layer, given = model.model.language_model.layers[0], []
    layer.register_forward_hook(
        lambda _module, _arguments, output: given.append(
            (output[0] if isinstance(output, tuple) else output).clone()
        )
    )
    torch.manual_seed(1)
    ids = torch.tensor([[5, 122, *[IMAGE] * 4, 123, 6]])
    inputs = {
        "pixel_values": torch.randn(16, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    }
    with torch.no_grad():
        states = model(input_ids=ids, **inputs, output_hidden_states=True).hidden_states
    return {
        "state is the layer's output": bool(torch.equal(states[1], given[0].view_as(states[1])))
    }
