"""What a release writes: files, keys and tensors of a save, and which keys of the checkpoint it loses.

The saves are those that a cell makes anyway: of the model for its round trip, and of the tokenizer. The
result has the form of Written in samebits/records/written.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from transformers import GenerationConfig
from transformers.utils import cached_file

from samebits_probe.cell.outcomes import plain, short_hash
from samebits_probe.model.load import Source
from samebits_probe.process.failure import in_one_line

Facts = dict[str, Any]
Changed = dict[str, tuple[str, str]]
"""Dotted key -> what the checkpoint states, and what there is."""

ABSENT: Final = "absent"
"""In place of the text of a value that is not there."""
_CONFIG, _GENERATION = "config.json", "generation_config.json"
_WEIGHTS = re.compile(r"\.(safetensors|bin|index\.json)$")
_PLACES = {
    *("transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "tokenizer_file"),
    *("special_tokens_map_file", "vocab_file", "merges_file", "chat_template_file"),
}
"""Keys at the top of a file that name the release or a folder."""
_LINE = re.compile(rb'"(%s)": ("[^"]*"|null),?' % "|".join(_PLACES).encode())
_OF_SAVE = {
    *_PLACES,
    *("_attn_implementation_autoset", "auto_map", "architectures", "model_type"),
    *("dtype", "torch_dtype", "_from_model_config"),
}
"""Keys that name the release, a folder, a class or code, and those that follow from how samebits loads a
model."""
_RENAMED = {"type": "rope_type"}
_ROPE = "rope_parameters"
_DEEP = 9
_DEPTHS = {"tokenizer.json": 1, "tokenizer_config.json": 2, "special_tokens_map.json": 1}
"""Levels of keys that are compared one by one; what is below them is one value."""
_MAX_VALUE, _MAX_LOST = 120, 20
_MAX_KEYS = 400
"""Keys of one file; a table of added tokens may have more."""


def of_model(
    folder: Path, source: Source, config_class: Any, tensors: dict[str, str] | None
) -> Facts:
    """Return what a save of a model wrote into ``folder``; ``tensors`` are those given to safetensors."""

    def lost() -> Iterator[tuple[str, Changed]]:
        classes = {_CONFIG: config_class, _GENERATION: GenerationConfig}
        written = {name: _leaves(json_of(folder / name)) for name in classes}
        for name, cls in classes.items():
            if not written[name]:
                continue  # a model that does not generate has no file for it
            read = partial(cls.from_pretrained, str(folder))
            yield name, _lost(_leaves(stated(source, name)), written, name, read)

    return of_folder(folder, lost) | {"tensors": tensors}


def of_folder(folder: Path, lost: Callable[[], Iterator[tuple[str, Changed]]]) -> Facts:
    """Return the files of a folder, and the keys that were lost; an exception is a fact, too."""
    try:
        files = {path.name: _file(path) for path in sorted(folder.iterdir()) if path.is_file()}
        named = {name: dict([*changed.items()][:_MAX_LOST]) for name, changed in lost() if changed}
    except Exception as error:  # noqa: BLE001  files that nobody can read again are a result
        return {"files": {}, "raised": in_one_line(error)}
    return {"files": files, "lost": named}


def _file(path: Path) -> Facts:
    """Return digest and keys of a file; of a file of tensors nothing, as their bytes are compared anyway."""
    if _WEIGHTS.search(path.name):
        return {}
    content = path.read_bytes()
    facts: Facts = {"digest": short_hash(_LINE.sub(b"", content))}
    depth = _DEPTHS.get(path.name, _DEEP)
    leaves = _leaves(json_of(path), depth=depth) if path.suffix == ".json" else {}
    values = [(name, value) for name, value in leaves.items() if name not in _PLACES]
    return facts | {"keys": {name: text_of(value) for name, value in values[:_MAX_KEYS]}}


def json_of(path: Path) -> Facts:
    """Return the mapping in a file; empty if there is none."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def file_of(source: Source, name: str, subfolder: str | None = None) -> Path | None:
    """Return a file of the checkpoint, which may be one of the hub; None if it has none.

    ``subfolder``: the one that holds it, if that is not the model's.
    """
    subfolder = source.subfolder if subfolder is None else subfolder
    folder = Path(source.where)
    if folder.is_dir():
        path = folder / subfolder / name
        return path if path.is_file() else None
    try:
        cached = cached_file(source.where, name, revision=source.revision, subfolder=subfolder)
    except OSError:
        return None
    return Path(cached) if cached else None


def stated(source: Source, name: str) -> Facts:
    """Return the mapping in a file of the checkpoint; empty if there is none."""
    path = file_of(source, name)
    return {} if path is None else json_of(path)


def text_of(value: Any) -> str:
    """Return a value as a short JSON text; of a long one its beginning and a hash."""
    if value is ABSENT:
        return "absent"
    text = plain(json.dumps(value, ensure_ascii=False, sort_keys=True, default=str))
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}… {short_hash(text.encode())}"


def _leaves(values: Mapping[str, Any], prefix: str = "", depth: int = _DEEP) -> Facts:
    """Return the values of a mapping by dotted names; a list, or a large mapping, is one value."""
    leaves: Facts = {}
    for key, value in values.items():
        if depth > 1 and isinstance(value, dict) and value and len(value) <= _MAX_KEYS:
            leaves |= _leaves(value, f"{prefix}{key}.", depth - 1)
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def _lost(
    named: Facts, written: Mapping[str, Facts], name: str, read: Callable[[], Any]
) -> Changed:
    """Return the keys of the checkpoint that what is read from the save has not as they were stated.

    A key whose value stands in the save under a new name was renamed, and so was a setting of rope that 5.x keeps
    with the others, whether or not the checkpoint has it there, too.
    """
    missing = {
        key: value
        for key, value in named.items()
        if value is not None
        and not _OF_SAVE.intersection(key.split("."))
        and not is_same(value, written[name].get(key, ABSENT))
    }
    if not missing:
        return {}
    new = [item for leaves in written.values() for item in leaves.items() if item[0] not in named]
    rope = [item for item in written[name].items() if _ROPE in item[0].split(".")]
    again = read()
    return {
        key: (text_of(value), text_of(new_value))
        for key, value in missing.items()
        if not is_same(value, new_value := at(again, key))
        and not _is_moved(key, value, new)
        and not any(
            is_same(value, new_value) for new_key, new_value in rope if _last(new_key) == _last(key)
        )
    }


def is_same(stated: Any, value: Any) -> bool:
    """Return True for equal values; JSON has no tuples."""
    return bool(stated == value) or text_of(stated) == text_of(value)


def at(owner: Any, key: str) -> Any:
    """Return the value of a dotted key in an object, and in the mappings and objects in it."""
    for name in key.split("."):
        if isinstance(owner, dict):
            owner = owner.get(name, owner.get(int(name), ABSENT) if name.isdigit() else ABSENT)
        else:
            owner = getattr(owner, name, ABSENT)
    return owner


def _is_moved(key: str, value: Any, new: list[tuple[str, Any]]) -> bool:
    """Return True if a value stands elsewhere: under the last part of its name, or a name of its own."""
    last = _last(key)
    names = {last, _RENAMED.get(last, last)}
    return any(
        is_same(value, new_value) and (_last(new_key) in names or not isinstance(value, bool))
        for new_key, new_value in new
    )


def _last(key: str) -> str:
    return key.rpartition(".")[2]
