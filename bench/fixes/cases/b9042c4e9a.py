"""A folder with a tokenizer alone gives the same tokenizer, whatever its name contains."""

import contextlib
import shutil
import tempfile

import transformers

CASE = {
    "symptom": "a tokenizer is read as another class if its folder's name contains a model type",
    "area": "tokenizer",
    "says": (r"5\.1\.0: TokenizersBackend", r"TokenizersBackend.*BertTokenizer"),
    "source": ("AutoTokenizer", "AutoConfig", "tokenization_auto.py", "configuration_auto.py"),
}


def make(folder: str) -> None:
    """Write a tokenizer of BERT, and no config of a model."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "house", "is", "red"]
    tokenizer = transformers.BertTokenizer(
        vocab={word: number for number, word in enumerate(words)}
    )
    tokenizer.save_pretrained(folder)


def observe(folder: str) -> object:
    """Return the class of the tokenizer in folders of two names."""
    classes = {}
    # relative paths: the name of a folder above could contain a model type too
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        for name in ("one", "chat-llama-one"):
            shutil.copytree(folder, name)
            classes[name] = type(transformers.AutoTokenizer.from_pretrained(name)).__name__
    return classes
