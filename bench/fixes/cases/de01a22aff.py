"""Ids of an empty text are integers, not floats."""

from sizes import TOWER
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CASE = {
    "symptom": "tokenizer('', return_tensors='pt') gives float ids, so the embedding raises",
    "signals": ("tokenizer", "ids"),
    "says": ("float32", "empty"),
    "source": ("BatchEncoding", "convert_to_tensors", "tokenization_utils_base.py"),
}


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of a few words."""
    words = {word: i for i, word in enumerate(["<unk>", "<pad>", "hello", "world", "again"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>")


def make(folder: str) -> None:
    """Write the artefact."""
    config = LlamaConfig(
        vocab_size=5,
        **TOWER,
        initializer_range=0.3,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def observe(folder: str) -> object:
    """Return what a user sees."""
    loaded = AutoTokenizer.from_pretrained(folder)
    empty = loaded("", return_tensors="pt")["input_ids"]
    filled = loaded("hello world", return_tensors="pt")["input_ids"]
    return {
        "empty": [str(empty.dtype), list(empty.shape)],
        "filled": [str(filled.dtype), filled.tolist()],
    }
