"""The text-generation pipeline pads a batch on the left, whatever the tokenizer's default is."""

import transformers
from sizes import IDS, SMALL
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "pipeline('text-generation') with a batch pads on the right: a short prompt is continued after its padding",
    "area": "pipeline",
    "says": (r"padding[_ ]side", r"right-padding was detected", r"TextGenerationPipeline"),
    "source": ("TextGenerationPipeline", "pipelines/text_generation.py"),
}


def make(folder: str) -> None:
    """Write a tiny Llama with a tokenizer that pads on the right, as is the default."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS),
        **SMALL,
        max_position_embeddings=64,
        initializer_range=0.3,
        **IDS,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return how a short prompt goes on, alone and in a batch with a longer one."""
    pipeline = transformers.pipeline("text-generation", model=folder)
    short, long = "the cat", "the big red dog ran to a house and sat"
    options = {"max_new_tokens": 8, "do_sample": False, "return_full_text": False}
    (alone,) = pipeline([short], **options)
    together, _ = pipeline([short, long], batch_size=2, **options)
    return {"alone": alone[0]["generated_text"], "batch": together[0]["generated_text"]}
