"""A LLaVA is saved under the names that its checkpoint had."""

import pathlib
import tempfile

import transformers
from safetensors import safe_open
from sizes import SMALL, TEXT
from tokens import NAMED, SPACES, tokenizer_of

CASE = {
    "before": "4.52.3",
    "after": "4.52.4",
    "made": "4.52.4",
    "symptom": "save_pretrained of a LLaVA gives the tensors other names than the checkpoint it came from",
    "says": (
        r"model\.language_model\.",
        r"model\.vision_tower\.",
        r"model\.multi_modal_projector\.",
        r"_checkpoint_conversion_mapping",
    ),
    "source": ("save_pretrained", "_checkpoint_conversion_mapping"),
}
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
SIDE = 16


def make(folder: str) -> None:
    """Write a tiny LLaVA with its processor."""
    words = [*SPECIAL, "what", "is", "this"]
    vocab = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of(words, SPACES, added=SPECIAL, **NAMED)
    image_processor = transformers.CLIPImageProcessor(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )
    transformers.LlavaProcessor(
        image_processor=image_processor,
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    text = {"model_type": "llama", **TEXT}
    vision = {
        "model_type": "clip_vision_model",
        **SMALL,
        "image_size": SIDE,
        "patch_size": 8,
        "projection_dim": 16,
    }
    config = transformers.LlavaConfig(
        text_config=text, vision_config=vision, image_token_index=vocab["<image>"]
    )
    # 4.52.4 writes the names that the checkpoints of the hub have
    transformers.LlavaForConditionalGeneration(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the beginnings of the names in the checkpoint, and of those saved from it."""
    model = transformers.LlavaForConditionalGeneration.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        return {"checkpoint": names(folder), "saved from it": names(saved)}


def names(folder: str) -> list[str]:
    """Return the first two parts of the names of a checkpoint's tensors."""
    with safe_open(pathlib.Path(folder, "model.safetensors"), "pt") as file:
        names = file.keys()  # the file itself is no iterable
    return sorted({".".join(name.split(".")[:2]) for name in names})
