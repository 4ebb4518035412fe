"""The base model of Cohere2 Vision finds its tensors in a checkpoint of the whole model."""

import transformers
from sizes import IDS, TEXT_128, TOWER

CASE = {
    "symptom": "AutoModel reads a checkpoint of Cohere2VisionForConditionalGeneration with random weights",
    "area": "loading and saving",
    "says": (r"Cohere2VisionModel.*(missing|random)", r"AutoModel\b.*(missing|random)"),
    "source": ("Cohere2VisionPreTrainedModel", "modeling_cohere2_vision.py", "base_model_prefix"),
}


def make(folder: str) -> None:
    """Write a tiny Cohere2 Vision."""
    text = {"model_type": "cohere2", **TEXT_128, **IDS}
    vision = {
        "model_type": "siglip_vision_model",
        **TOWER,
        "image_size": 32,
        "patch_size": 8,
        "vision_use_head": False,
    }
    config = transformers.Cohere2VisionConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=120,
        downsample_factor=2,
        alignment_intermediate_size=32,
    )
    transformers.Cohere2VisionForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the numbers of tensors that a load of the base model finds missing."""
    _, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    return {"missing": len(info["missing_keys"])}
