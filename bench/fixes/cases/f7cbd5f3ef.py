"""The vision tower of Mllama gives the states of its intermediate layers, not the last one five times."""

import torch
import transformers
from sizes import IDS

CASE = {
    "made": "4.56.0",
    "symptom": "Mllama answers wrongly about images: all intermediate features are the last layer's",
    "signals": ("logits", "hidden_states", "cross_attention_states", "greedy"),
    "source": ("MllamaVisionModel", "MllamaVisionEncoder", "modeling_mllama.py"),
}


def make(folder: str) -> None:
    """Write a tiny Mllama with an image tower of three layers, of which two are intermediate ones."""
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_global_layers": 1,
        "attention_heads": 4,
        "image_size": 16,
        "patch_size": 8,
        "max_num_tiles": 2,
        "intermediate_layers_indices": [0, 1],
        "vision_output_dim": 96,
        "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]],
        "initializer_range": 0.3,
    }
    text = {
        "vocab_size": 128,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "cross_attention_layers": [1],
        "rope_scaling": {"rope_type": "default"},
        **IDS,
        "initializer_range": 0.3,
    }
    config = transformers.MllamaConfig(
        vision_config=vision, text_config=text, image_token_index=127
    )
    model = transformers.MllamaForConditionalGeneration(config)
    for name, parameter in model.named_parameters():
        if "gate" in name:
            torch.nn.init.constant_(parameter, 0.5)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how far the features of two intermediate layers are from each other."""
    model = transformers.MllamaForConditionalGeneration.from_pretrained(folder).eval()
    tower = next(
        module for module in model.modules() if type(module).__name__ == "MllamaVisionModel"
    )
    torch.manual_seed(1)
    with torch.no_grad():
        output = tower(
            pixel_values=torch.randn(1, 1, 2, 3, 16, 16),
            aspect_ratio_ids=torch.tensor([[2]]),
            aspect_ratio_mask=torch.ones(1, 1, 2, dtype=torch.long),
        )
    # the last state, then the intermediate ones, interleaved
    intermediate = output[0][..., 32:].unflatten(-1, (32, 2))
    distance = (intermediate[..., 0] - intermediate[..., 1]).abs().max()
    return {"features of the intermediate layers differ by": round(float(distance), 5)}
