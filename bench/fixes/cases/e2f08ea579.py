"""enable_input_require_grads lets gradients reach the image tower of Qwen2-VL."""

import numpy as np
import transformers
from PIL import Image
from qwen2_vl import make  # noqa: F401  a part of the case

CASE = {
    "packages": ("torchvision",),
    "symptom": "weights in Qwen2-VL's image tower get no gradient under gradient checkpointing",
    "signals": ("gradients",),
    "findings": ("SB844", "SB849"),
    "says": (r"enable_input_require_grads",),
    "source": ("enable_input_require_grads",),
}


def observe(folder: str) -> object:
    """Return the parts whose attention gets a gradient when all other weights are frozen."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.Qwen2VLForConditionalGeneration.from_pretrained(folder).train()
    trained = {}
    for name, weight in model.named_parameters():
        wanted = name.endswith(("qkv.weight", "q_proj.weight"))
        weight.requires_grad_(wanted)
        if wanted:
            trained[name] = weight
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.enable_input_require_grads()
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    inputs = processor(
        images=[Image.fromarray(pixels)],
        text=["<|vision_start|><|image_pad|><|vision_end|>what is this?"],
        return_tensors="pt",
    )
    model(**inputs, labels=inputs["input_ids"], use_cache=False).loss.backward()
    return sorted(name for name, weight in trained.items() if weight.grad is not None)
