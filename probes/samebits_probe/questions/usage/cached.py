"""Whether the tokenizer loads by its name on the hub from a cache, without a network, as on most machines of a cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from transformers import AutoTokenizer

from samebits_probe.questions.usage.subject import NoMeaning, Subject

_NAME, _FOLDER = "samebits/cached", "models--samebits--cached"
_COMMIT = "0" * 40
_FILES = ("*.json", "*.jinja", "*.txt", "*.model")
_TEXT = "Hello world 2023: the capital of France is Paris."


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the load, of a tokenizer of the library whose files are in the folder of a model.

    The cache does not know which files the hub lacks, and without config.json releases look for a tokenizer by that.
    """
    tokenizer = subject.tokenizer
    folder = Path(str(getattr(tokenizer, "name_or_path", "")))
    if (
        type(tokenizer).__module__.startswith("transformers.")
        and (folder / "config.json").is_file()
    ):
        yield (
            "AutoTokenizer.from_pretrained() from the hub's cache, offline",
            partial(_load, tokenizer, folder),
        )


def _load(tokenizer: Any, folder: Path) -> str:
    if not constants.HF_HUB_OFFLINE:
        raise NoMeaning("this environment may ask the hub")
    with tempfile.TemporaryDirectory() as cache:
        repository = Path(cache, _FOLDER)
        snapshot = repository / "snapshots" / _COMMIT
        snapshot.mkdir(parents=True)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(_COMMIT, "utf-8")
        for file in (file for pattern in _FILES for file in folder.glob(pattern)):
            (snapshot / file.name).symlink_to(file.absolute())
        cached = AutoTokenizer.from_pretrained(_NAME, cache_dir=cache)
    same = cached(_TEXT)["input_ids"] == tokenizer(_TEXT)["input_ids"]
    return "the ids of the folder" if same else "other ids than from the folder"
