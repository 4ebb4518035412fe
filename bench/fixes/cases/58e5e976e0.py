"""VAN is built where the meta device is in use."""

import torch
import transformers

CASE = {
    "symptom": "building VAN under torch.device('meta') raises RuntimeError, as it reads its rates of dropping from a tensor",
    "says": (r"meta", r"Tensor\.item\(\) cannot be called"),
    "source": ("VanEncoder", "modeling_van.py"),
}


def make(folder: str) -> None:
    """Write a tiny VAN."""
    config = transformers.VanConfig(
        image_size=32,
        hidden_sizes=[8, 16, 16, 32],
        depths=[1, 1, 1, 1],
        mlp_ratios=[2, 2, 2, 2],
        num_labels=3,
    )
    transformers.VanForImageClassification(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return where the parameters of a model of the config are, or the exception."""
    config = transformers.AutoConfig.from_pretrained(folder)
    try:
        with torch.device("meta"):
            model = transformers.AutoModelForImageClassification.from_config(config)
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return sorted({value.device.type for value in model.parameters()})
