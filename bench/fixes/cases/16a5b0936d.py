"""The tokenizer.json of DeepSeek V3 is read as it is, though the hub names another tokenizer class."""

import deepseek
import tokenizers
import transformers

CASE = {
    "made": "5.4.0",
    "symptom": "DeepSeek V3's tokenizer is rebuilt as Llama's: other ids for every text with a space",
    "area": "tokenizer",
    "findings": ("SB806", "SB811", "SB812", "SB815", "SB816"),
    "says": (r"pre_tokenizer", r"TokenizersBackend"),
    "source": ("LlamaTokenizer", "tokenization_auto.py", "tokenization_llama.py"),
}


def make(folder: str) -> None:
    """Write a tiny DeepSeek V3."""
    deepseek.make(folder, transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM)


def observe(folder: str) -> object:
    """Return the ids of texts, and whether they are those of tokenizer.json itself."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        backend = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
        texts = ["the quick fox", "add(12, 34)"]
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    except Exception as error:  # noqa: BLE001  what a user sees
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return {
        "as tokenizer.json": [a == backend.encode(b).ids for a, b in zip(ids, texts, strict=True)],
        "ids": ids,
    }
