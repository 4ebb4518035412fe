"""The vision towers of MLCD are known to AutoConfig by the type that they are saved with."""

import transformers
from sizes import SMALL

CASE = {
    "symptom": "AutoConfig and AutoModel do not know the type mlcd_vision_model that save_pretrained of MLCD writes",
    "area": "loading and saving",
    "failure": "mlcd_vision_model` but Transformers does not recognize",
    "says": (r"mlcd_vision_model.{0,40}does not recognize",),
    "source": ("MLCDVisionConfig", "configuration_auto.py", "CONFIG_MAPPING"),
}


def make(folder: str) -> None:
    """Write a tiny MLCD."""
    config = transformers.MLCDVisionConfig(
        **SMALL, image_size=16, patch_size=8, initializer_range=0.3
    )
    transformers.MLCDVisionModel(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class that AutoModel gives, or the exception."""
    model = transformers.AutoModel.from_pretrained(folder)
    return type(model).__name__
