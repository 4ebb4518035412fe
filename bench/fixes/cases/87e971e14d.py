"""ConvNeXtV2 normalises each channel by the length of its values, which are a vector and no matrix."""

import torch
import transformers

CASE = {
    "symptom": "ConvNeXtV2 divides channels by the largest singular value of an image in place of its length",
    "signals": ("hidden_states", "logits"),
    "source": ("ConvNextV2GRN", "modeling_convnextv2.py"),
}


def make(folder: str) -> None:
    """Write a tiny ConvNeXtV2 whose normalisation has weights, as a trained one has."""
    config = transformers.ConvNextV2Config(
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 2, 1],
        image_size=64,
        num_labels=5,
        initializer_range=0.3,
    )
    model = transformers.ConvNextV2ForImageClassification(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".grn." in name:
                parameter.normal_(0, 0.5)
    model.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the sum of the logits of an image with a pattern."""
    model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    image = torch.linspace(-2, 2, 3 * 64 * 64).sin().reshape(1, 3, 64, 64)
    with torch.no_grad():
        return f"{model(image).logits.double().abs().sum().item():.2e}"
