"""An exported model takes a cache that holds tokens."""

import torch
import transformers
from sizes import TEXT

CASE = {
    "symptom": "a model that torch.export exported with a DynamicCache raises when it gets one with tokens",
    "says": (r"torch\.export.*DynamicCache", r"_flatten_dynamic_cache_for_fx"),
    "source": ("_flatten_dynamic_cache_for_fx", "cache_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Mistral."""
    config = transformers.MistralConfig(**TEXT, max_position_embeddings=64, sliding_window=None)
    transformers.MistralForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return whether the exported model computes the logits of the model."""
    model = transformers.MistralForCausalLM.from_pretrained(folder).eval()
    ids = torch.arange(3, 9)[None]

    def inputs() -> dict[str, object]:
        with torch.no_grad():
            cache = model(ids, use_cache=True).past_key_values
        mask = torch.ones(1, 9, dtype=torch.long)
        return {
            "input_ids": torch.arange(9, 12)[None],
            "attention_mask": mask,
            "past_key_values": cache,
            "use_cache": True,
        }

    exported = torch.export.export(model, (), inputs(), strict=False).module()
    try:
        with torch.no_grad():
            logits = exported(**inputs()).logits
    except Exception as error:  # noqa: BLE001 - torch raises what its guard says
        return f"{type(error).__name__}: {error}".splitlines()[0]
    with torch.no_grad():
        expected = model(**inputs()).logits
    return {"logits are equal": bool((logits - expected).abs().max() < 1e-4)}
