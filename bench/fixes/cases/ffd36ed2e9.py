"""A Qwen2 whose tokenizer the hub names LlamaTokenizerFast, as DeepSeek-R1-Distill-Qwen, keeps its tokenizer.json."""

import deepseek
import transformers
from sizes import TEXT

CASE = {
    "made": "5.8.0",
    "symptom": "the tokenizer of a DeepSeek-R1-Distill-Qwen is rebuilt as Llama's: other ids for every text with a space",
    "area": "tokenizer",
    "findings": ("SB806", "SB811", "SB812", "SB815", "SB816"),
    "says": (r"pre_tokenizer", r"TokenizersBackend", r"Qwen2Tokenizer"),
    "source": ("LlamaTokenizer", "tokenization_auto.py", "tokenization_llama.py"),
}


def make(folder: str) -> None:
    """Write a tiny Qwen2 with the tokenizer."""
    deepseek.tokenizer(folder)
    config = transformers.Qwen2Config(
        **TEXT | {"vocab_size": 320}, max_position_embeddings=64, bos_token_id=0, eos_token_id=1
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class of the tokenizer, and the ids of a text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [type(tokenizer).__name__, tokenizer("the lazy dog 12")["input_ids"]]
