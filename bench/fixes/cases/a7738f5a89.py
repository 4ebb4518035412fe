"""AutoTokenizer knows a tokenizer for Nemotron."""

import transformers
from saved import edit
from sizes import IDS, TEXT
from tokens import NAMED, WORDS, tokenizer_of

CASE = {
    "symptom": "AutoTokenizer raises KeyError for a Nemotron whose files name no tokenizer class, such as its GGUF",
    "area": "tokenizer",
    "failure": "NemotronConfig",
    "says": (r"KeyError.*NemotronConfig",),
    "source": ("tokenization_auto.py", "NemotronConfig", "AutoTokenizer"),
}


def make(folder: str) -> None:
    """Write a tiny Nemotron with a tokenizer whose class is not named."""
    tokenizer_of(WORDS, **NAMED).save_pretrained(folder)
    edit(folder, "tokenizer_config.json", drop=["tokenizer_class"])
    config = transformers.NemotronConfig(**TEXT, head_dim=8, max_position_embeddings=64, **IDS)
    transformers.NemotronForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the ids of a text, or the exception."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer("the cat sat")["input_ids"]
