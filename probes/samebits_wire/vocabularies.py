"""The names of a tokenizer's files, by which both sides see that a checkpoint has one."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

_NAMES = (
    *("tokenizer*.json", "tokenizer.model*", "*.tokenizer", "*.model", "*.spm", "*.tiktoken"),
    *("vocab.*", "vocab-*.json", "*_vocab.json", "*.vocab", "merges.txt", "*.codes", "*.bpe"),
    *("tekken.json", "byte_maps.json"),
)
"""Those that the classes of transformers read, and what 5.x looks for beside them: any sentencepiece model, and the
files of tiktoken and of Mistral. tokenizer_config.json stands for a class without a vocabulary, such as ByT5's."""


PROCESSORS = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
_OF_MODELS = (
    *(
        "config.json",
        "adapter_config.json",
        "model_index.json",
        "params.json",
        "hyperparams.yaml",
        "*_clip_config.json",
    ),
    *(
        "gliner_config.json",
        "*.safetensors",
        "*.bin",
        "*.gguf",
        "*.ckpt*",
        "*.pt",
        "*.pth",
        "*.h5",
        "*.msgpack",
    ),
    *("*.onnx", "*.index.json"),
)
"""Files that show that a folder has more than a tokenizer and processors: a model, a part of one, one of another library."""


def is_of_tokenizer(name: str) -> bool:
    """Return True for the name of a file that only a tokenizer needs."""
    return any(fnmatchcase(name, pattern) for pattern in _NAMES)


def has_tokenizer(folder: Path) -> bool:
    """Return True if there is a file of a tokenizer in the folder of a checkpoint."""
    return any(is_of_tokenizer(path.name) and not path.is_dir() for path in folder.iterdir())


def has_no_model(folder: Path) -> bool:
    """Return True for a folder with a tokenizer or processors, and nothing of a model beside it or one level below."""
    if not folder.is_dir() or any(folder.glob("*/config.json")):
        return False
    names = [path.name for path in folder.iterdir() if not path.is_dir()]
    if any(fnmatchcase(name, pattern) for name in names for pattern in _OF_MODELS):
        return False
    return has_tokenizer(folder) or not {*PROCESSORS}.isdisjoint(names)
