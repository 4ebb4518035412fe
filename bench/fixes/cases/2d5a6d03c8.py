"""ShieldGemma 2 finds its embeddings again, which Gemma 3 keeps in its decoder."""

import transformers
from sizes import SMALL, TEXT

CASE = {
    "made": "5.1.0",
    "symptom": "ShieldGemma 2 raises AttributeError: Gemma3ForConditionalGeneration has no attribute language_model",
    "failure": "has no attribute 'language_model'",
    "says": (r"has no attribute 'language_model'",),
    "source": (
        "ShieldGemma2ForImageClassification",
        "get_input_embeddings",
        "get_output_embeddings",
        "modeling_shieldgemma2.py",
    ),
}


def make(folder: str) -> None:
    """Write a tiny ShieldGemma 2."""
    config = transformers.ShieldGemma2Config(
        text_config={**TEXT, "head_dim": 8, "max_position_embeddings": 64},
        vision_config={**SMALL, "image_size": 28, "patch_size": 7},
        mm_tokens_per_image=4,
        boi_token_index=60,
        eoi_token_index=61,
        image_token_index=62,
        yes_token_index=5,
        no_token_index=6,
    )
    transformers.ShieldGemma2ForImageClassification(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what comes of asking for the embeddings, of making them larger and of training with them."""
    model = transformers.ShieldGemma2ForImageClassification.from_pretrained(folder)
    seen = {}
    steps = {
        "get_input_embeddings": lambda: list(model.get_input_embeddings().weight.shape),
        "enable_input_require_grads": lambda: str(model.enable_input_require_grads()),
        "resize_token_embeddings": lambda: list(model.resize_token_embeddings(72).weight.shape),
    }
    for name, step in steps.items():
        try:
            seen[name] = step()
        except Exception as error:  # noqa: BLE001  what a user sees
            seen[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return seen
