"""Copies of a checkpoint for a capsule: whole, with fewer layers, or without weights.

A safetensors file is a length, a JSON header and bytes, so tensors can be removed without a
library. Sharded and pickled weights are copied unchanged and keep all layers. A stand-in has only
such a header in place of its weights, and the scripts write zeros after it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

LIMIT = 4 << 20
"""Maximum bytes of a checkpoint in a capsule: a report is committed and read on the web."""

_SETTINGS = ("config.json", "generation_config.json")
_STORED = ("*.safetensors", "pytorch_model*.bin", "*.index.json")
_WEIGHTS = "model.safetensors"
STAND_IN = "stand-in.json"
"""File in place of weights: name, dtype and shape of every tensor, as a safetensors header."""
_LAYER_FIELDS = (
    "num_hidden_layers",
    "num_layers",
    "n_layer",
    "n_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)
"""Config fields with a number of layers."""
_LAYER_NUMBER = re.compile(r"^(.*?)(?<![^.])(\d+)(?=\.|$)")

Json = dict[str, Any]


class CannotShrink(Exception):  # noqa: N818  a model that keeps its layers is a result
    """The checkpoint's layers cannot be counted, or its weights cannot be cut."""


def copy_checkpoint(source: Path, out: Path, *, code: bool = True) -> None:
    """Copy the files that a load needs, without the tokenizer. Links are followed.

    Without ``code`` no Python file is copied: some releases would run one although nobody trusts it.
    """
    _copy(source, _files(source), out, code=code)


def copy_without_weights(source: Path, out: Path, header: Json, *, code: bool = True) -> None:
    """Copy the files that a load needs, with ``header`` in place of the weights."""
    _copy(source, _matching_files(source, _SETTINGS), out, code=code)
    _write_header(out / STAND_IN, header)


def is_stand_in(folder: Path) -> bool:
    """Return True if a copy has a list of tensors in place of its weights."""
    return (folder / STAND_IN).is_file()


def _copy(source: Path, paths: Iterable[Path], out: Path, *, code: bool) -> None:
    out.mkdir(parents=True)
    for path in paths:
        if path.suffix == ".py" and not code:
            continue
        target = out / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _files(source: Path) -> Iterable[Path]:
    """Return the files that a load needs; for a stand-in without the zeros of a script."""
    weights = (STAND_IN,) if is_stand_in(source) else _STORED
    return _matching_files(source, (*_SETTINGS, *weights))


def _matching_files(source: Path, patterns: Iterable[str]) -> Iterable[Path]:
    paths = {path for pattern in patterns for path in source.glob(pattern)}
    # code may be a package of its own
    paths |= {path for path in source.rglob("*.py") if "__pycache__" not in path.parts}
    return sorted(path for path in paths if path.is_file())


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that a load needs, by their paths in the folder."""
    paths = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    return {name: sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}


def size(folder: Path) -> int:
    """Return the bytes of the files that a load needs."""
    return sum(path.stat().st_size for path in _files(folder))


def n_layers(folder: Path) -> int:
    """Return the largest number of layers in the config; 1 if it has none."""
    return max(_layer_counts(_config(folder)).values(), default=1)


def copy_with_layers(source: Path, out: Path, n: int) -> None:
    """Copy a checkpoint with the first ``n`` layers of every stack of layers.

    Raises:
        CannotShrink: its config counts no layers, or its weights are in several files.

    """
    config = _config(source)
    counts = _layer_counts(config)
    stand_in = is_stand_in(source)
    if not counts or not (stand_in or (source / _WEIGHTS).is_file()):
        msg = "its config does not give the number of layers, or its weights are in several files"
        raise CannotShrink(msg)
    copy_checkpoint(source, out)
    _cut_config(config, set(counts.values()), n)
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True), "utf-8")
    if stand_in:
        header = json.loads((source / STAND_IN).read_text("utf-8"))
        kept_names = set(_kept_tensors(header, set(counts.values()), n))
        _write_header(out / STAND_IN, _without_gaps(header, kept_names)[0])
        return
    header, data = _read(source / _WEIGHTS)
    kept_names = set(_kept_tensors(header, set(counts.values()), n))
    _write(out / _WEIGHTS, header, data, kept_names)


def _config(folder: Path) -> Json:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return config if isinstance(config, dict) else {}


def _layer_counts(config: Json) -> dict[str, int]:
    text_config = config.get("text_config")
    counts = dict(_layer_counts(text_config)) if isinstance(text_config, dict) else {}
    return counts | {
        key: value
        for key in _LAYER_FIELDS
        if isinstance(value := config.get(key), int) and not isinstance(value, bool)
    }


def _cut_config(config: Json, counts: set[int], n: int) -> None:
    """Limit every count to ``n``, and cut every list with one entry per layer to ``n`` entries."""
    for key, value in config.items():
        if key in _LAYER_FIELDS and isinstance(value, int):
            config[key] = min(value, n)
        elif isinstance(value, list) and len(value) in counts and len(value) > n:
            config[key] = value[:n]
        elif isinstance(value, dict) and key == "text_config":
            _cut_config(value, counts, n)


def _kept_tensors(header: Json, counts: set[int], n: int) -> Iterable[str]:
    """Return the tensors that stay: those outside of layers, and those of the first ``n``.

    The first number in a name is that of the layer, if its stack has as many layers as the config
    says. The number of an expert comes after it.
    """
    stacks: dict[str, int] = {}
    for name in header:
        if match := _LAYER_NUMBER.match(name):
            stacks[match[1]] = max(stacks.get(match[1], 0), int(match[2]) + 1)
    for name in header:
        match = _LAYER_NUMBER.match(name)
        if match is None or stacks[match[1]] not in counts or int(match[2]) < n:
            yield name


def _read(path: Path) -> tuple[Json, bytes]:
    """Return the header and the bytes after it."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def _write(path: Path, header: Json, data: bytes, names: set[str]) -> None:
    """Write the tensors ``names`` in the order of their bytes."""
    new, places = _without_gaps(header, names)
    text = json.dumps(new, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [data[start:stop] for start, stop in places]
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def _without_gaps(header: Json, names: set[str]) -> tuple[Json, list[tuple[int, int]]]:
    """Return a header without gaps for the tensors ``names``, and where their bytes were."""
    tensors = [(name, facts) for name, facts in header.items() if name in names and name != _META]
    tensors.sort(key=lambda tensor: tensor[1]["data_offsets"])
    new: Json = {_META: header[_META]} if _META in header else {}
    places, end = [], 0
    for name, facts in tensors:
        start, stop = facts["data_offsets"]
        places.append((start, stop))
        new[name] = facts | {"data_offsets": [end, end + stop - start]}
        end += stop - start
    return new, places


def _write_header(path: Path, header: Json) -> None:
    """Write a header with one line per tensor; the format allows white space."""
    lines = (f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in header.items())
    path.write_text("{" + ",\n ".join(lines) + "}\n", "utf-8")


_META = "__metadata__"
