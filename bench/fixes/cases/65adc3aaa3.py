"""A base model is its own decoder."""

import transformers
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "before": "4.56.1",
    "after": "4.56.2",
    "symptom": "get_decoder() of a base model such as MistralModel gives None",
    "says": (r"get_decoder",),
    "source": ("get_decoder", "EmbeddingAccessMixin", "modeling_utils.py"),
}


def make(folder: str) -> None:
    """Write a tiny Mistral with its tokenizer."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.MistralConfig(**TEXT, head_dim=8, max_position_embeddings=64, **IDS)
    transformers.MistralForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class of the decoder of the model and of its base."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return [type(part.get_decoder()).__name__ for part in (model, model.model)]
