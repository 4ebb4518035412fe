"""What can be seen of a checkpoint's folder without running anything of it."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from samebits_wire.atomic import read_whole
from samebits_wire.vocabularies import is_of_tokenizer

CUSTOM_GENERATE = "custom_generate/generate.py"
"""The code that from_pretrained of 4.52 and later puts in the place of ``generate``."""
CONFIGS = (
    "config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
"""The files of a checkpoint whose ``auto_map`` names classes of its own."""
MAX_SMALL = 100_000_000
"""Bytes of a file that is read whole and is neither weights nor a tokenizer. The largest known is an index of 20 MB."""
_SMALL = (
    *CONFIGS,
    "generation_config.json",
    "modules.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
)
_INDEX = ".index.json"
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")
_MAX_VOCABULARY = 1 << 30
_READ = (".json", ".jinja", ".txt", ".py", ".safetensors", ".bin")
"""Ends of the names of files that a load reads, beside those of a tokenizer."""
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
ADAPTER = "adapter_config.json"
"""The file of an adapter of peft."""
_ONLY_OF_A_MODEL = (
    *(ADAPTER, "model_index.json"),
    *("*.safetensors", "*.gguf", "pytorch_model*", "*.ckpt", "*.index.json"),
)
"""Files that only a folder with a model has."""
_OF_A_MODEL = {"model_type", "architectures", "auto_map"}


class OwnCode(NamedTuple):
    """The Python code that comes with a checkpoint."""

    auto_maps: dict[str, tuple[str, ...]] = {}  # noqa: RUF012  a default that nobody changes
    """Config -> the classes that its ``auto_map`` names: a load imports them."""
    custom_generate: bool = False
    """True if there is code for ``generate``, without which the model loads as well."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are code or name it."""
        return (*self.auto_maps, *([CUSTOM_GENERATE] if self.custom_generate else []))

    @property
    def places(self) -> str:
        """Where the code is named, in words."""
        maps = [f"auto_map in {file}{_listed(names)}" for file, names in self.auto_maps.items()]
        return ", ".join([*maps, *([CUSTOM_GENERATE] if self.custom_generate else [])])


def _listed(names: tuple[str, ...]) -> str:
    return f" ({', '.join(names[:3])})" if names else ""


def own_code(folder: Path) -> OwnCode:
    """Return the code that comes with the checkpoint in a folder."""
    maps = {
        file: values["auto_map"]
        for file in CONFIGS
        if (values := _json(folder / file)).get("auto_map")
    }
    return OwnCode(
        {file: mapped_classes(auto_map) for file, auto_map in maps.items()},
        (folder / CUSTOM_GENERATE).is_file(),
    )


def is_checkpoint(folder: Path) -> bool:
    """Return True if a folder holds the config of a model, so that others may have made it."""
    return not _OF_A_MODEL.isdisjoint(_json(folder / "config.json"))


def folder_of_model(folder: Path) -> Path | None:
    """Return the folder of a model that a folder is, or lies in; None if there is none.

    What is in it may have come with the model. What lies in a folder in which anyone may write, such
    as /tmp, is no part of a project below it.
    """
    inner = folder.resolve()
    above = (parent for parent in inner.parents if not _is_shared(parent))
    return next(filter(_has_checkpoint, (inner, *above)), None)


def _has_checkpoint(folder: Path) -> bool:
    try:
        names = os.listdir(folder)  # noqa: PTH208  names are all that is needed
    except OSError:
        return False
    if any(fnmatchcase(name, pattern) for name in names for pattern in _ONLY_OF_A_MODEL):
        return True
    return is_checkpoint(folder)


def _is_shared(folder: Path) -> bool:
    """Return True for a folder in which every user may write and remove only their own files."""
    shared = stat.S_ISVTX | stat.S_IWOTH
    try:
        return folder.stat().st_mode & shared == shared
    except OSError:
        return False


def mapped_classes(auto_map: object) -> tuple[str, ...]:
    """Return the names in an ``auto_map``; a tokenizer's lists a slow and a fast class."""
    if not isinstance(auto_map, dict):
        return ()
    values = [
        v for value in auto_map.values() for v in (value if isinstance(value, list) else [value])
    ]
    return tuple(sorted({str(value) for value in values if value}))


def read_small(path: Path) -> bytes:
    """Return the content of a small file of a checkpoint. Raises OSError for what is none, without waiting for it."""
    return read_whole(path, most=MAX_SMALL)


def json_of(path: Path) -> Any:  # noqa: ANN401  any JSON
    """Return the content of a small file of a checkpoint; None if it cannot be read, which others say."""
    try:
        return json.loads(read_small(path))
    except (OSError, ValueError, RecursionError):
        return None


def _json(path: Path) -> dict[str, Any]:
    values = json_of(path)
    return values if isinstance(values, dict) else {}


def odd_files(folder: Path) -> Iterator[str]:
    """Yield each file of a checkpoint that a load would wait for, or fill the memory with, in a sentence."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:  # which the reader of config.json says
        return
    for path in paths:
        try:
            status = path.stat()
        except OSError:  # a link to nowhere, which is said where it matters
            continue
        kind = _KINDS.get(stat.S_IFMT(status.st_mode))
        if kind and (path.name.endswith(_READ) or is_of_tokenizer(path.name)):
            yield (
                f"{path} is {kind} and no file, and a load would wait for it or read it without end: "
                "remove it, or put the file there"
            )
        elif stat.S_ISREG(status.st_mode) and status.st_size > (most := _most(path.name)):
            yield (
                f"{path} has {status.st_size:,} bytes, and no such file has {most:,}. Usually its copy "
                "or download failed: copy or download it again"
            )


def _most(name: str) -> float:
    """Return how many bytes a file that a load reads may have; infinity for others, such as weights."""
    if name in _SMALL or name.endswith(_INDEX):
        return MAX_SMALL
    return _MAX_VOCABULARY if name in _VOCABULARIES else math.inf
