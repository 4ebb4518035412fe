"""A custom tokenizer that adds no tokens may read its vocabulary after its base class is set up."""

import json
from pathlib import Path

import transformers
from sizes import GROUPED

CASE = {
    "made": "5.1.0",
    "options": ("--trust-remote-code",),
    "symptom": "a custom tokenizer that reads its vocabulary after super().__init__(), as Qwen-VL's does, raises AttributeError",
    "findings": ("SB867",),
    "failure": "has no attribute words",
    "says": (r"has no attribute words", r"_update_total_vocab_size"),
    "source": ("PythonBackend", "tokenization_python.py", "_update_total_vocab_size", "get_vocab"),
}
CODE = '''"""A tokenizer of words with code of its own."""

from transformers import PreTrainedTokenizer


class OwnTokenizer(PreTrainedTokenizer):
    """Splits at spaces."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.words = ["<pad>", "</s>", "<unk>", "the", "cat", "sat"]

    @property
    def vocab_size(self):
        return len(self.words)

    def get_vocab(self):
        return {word: number for number, word in enumerate(self.words)}

    def _add_tokens(self, new_tokens, special_tokens=False):
        return 0

    def build_inputs_with_special_tokens(self, token_ids_0, token_ids_1=None):
        return token_ids_0 + (token_ids_1 or [])

    def _tokenize(self, text):
        return text.split()

    def _convert_token_to_id(self, token):
        return self.words.index(token) if token in self.words else 2

    def _convert_id_to_token(self, index):
        return self.words[index]

    def save_vocabulary(self, save_directory, filename_prefix=None):
        return ()
'''


def make(folder: str) -> None:
    """Write a tiny Llama with a tokenizer of its own code."""
    config = transformers.LlamaConfig(vocab_size=64, **GROUPED, pad_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    Path(folder, "tokenization_own.py").write_text(CODE, "utf-8")
    settings = {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]},
    }
    Path(folder, "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")


def observe(folder: str) -> object:
    """Return the ids of a text, or the exception."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    return tokenizer("the cat")["input_ids"]
