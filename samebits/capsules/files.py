"""Which files of a checkpoint go into a capsule, and how a model gets fewer layers.

A safetensors file is a length, a JSON header and bytes, so no library is needed to leave tensors
out of one. Sharded and pickled weights are copied as they are and lose no layers. A stand-in has no
weights but such a header, and the scripts write zeros behind it.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LIMIT = 4 << 20
"""Bytes of a checkpoint that is copied: a report is committed and read on the web."""

_SETTINGS = ("config.json", "generation_config.json")
_STORED = ("*.safetensors", "pytorch_model*.bin", "*.index.json")
_WEIGHTS = "model.safetensors"
STAND_IN = "stand-in.json"
"""In place of weights: name, dtype and shape of every tensor, as the header of a safetensors file."""
_COUNTS = (
    "num_hidden_layers",
    "num_layers",
    "n_layer",
    "n_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)
"""Config fields that say how many layers there are."""
_NUMBERED = re.compile(r"^(.*?)(?<![^.])(\d+)(?=\.|$)")

Json = dict[str, Any]


class CannotShrink(Exception):  # noqa: N818  a model that keeps its layers is a result
    """The checkpoint's layers cannot be counted, or its weights not be cut."""


def copied(source: Path, out: Path) -> None:
    """Copy what a load needs, and no tokenizer; links are followed."""
    _copy(source, _files(source), out)


def without_weights(source: Path, out: Path, header: Json) -> None:
    """Copy what a load needs but its weights; ``header`` names their tensors."""
    _copy(source, _found(source, _SETTINGS), out)
    _write_header(out / STAND_IN, header)


def is_stand_in(folder: Path) -> bool:
    """Return True if a copy has a list of tensors in place of its weights."""
    return (folder / STAND_IN).is_file()


def _copy(source: Path, paths: Iterable[Path], out: Path) -> None:
    out.mkdir(parents=True)
    for path in paths:
        target = out / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _files(source: Path) -> Iterable[Path]:
    """Return what a load needs; of a stand-in not the zeros that a script has written."""
    weights = (STAND_IN,) if is_stand_in(source) else _STORED
    return _found(source, (*_SETTINGS, *weights))


def _found(source: Path, patterns: Iterable[str]) -> Iterable[Path]:
    found = {path for pattern in patterns for path in source.glob(pattern)}
    # code may be a package of its own
    found |= {path for path in source.rglob("*.py") if "__pycache__" not in path.parts}
    return sorted(path for path in found if path.is_file())


def size(folder: Path) -> int:
    """Return the bytes of the files that a load needs."""
    return sum(path.stat().st_size for path in _files(folder))


def n_layers(folder: Path) -> int:
    """Return the largest number of layers that the config speaks of; 1 if it does not."""
    return max(_counts(_config(folder)).values(), default=1)


def with_layers(source: Path, out: Path, n: int) -> None:
    """Copy a checkpoint with the first ``n`` layers of every stack of layers.

    Raises:
        CannotShrink: no layers are counted in its config, or its weights are in several files.

    """
    config = _config(source)
    counts = _counts(config)
    stand_in = is_stand_in(source)
    if not counts or not (stand_in or (source / _WEIGHTS).is_file()):
        msg = "no layers that could be counted, or no single safetensors file"
        raise CannotShrink(msg)
    copied(source, out)
    _cut_config(config, set(counts.values()), n)
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True), "utf-8")
    if stand_in:
        header = json.loads((source / STAND_IN).read_text("utf-8"))
        kept = set(_kept(header, set(counts.values()), n))
        _write_header(out / STAND_IN, _closed_up(header, kept)[0])
        return
    header, data = _read(source / _WEIGHTS)
    kept = set(_kept(header, set(counts.values()), n))
    _write(out / _WEIGHTS, header, data, kept)


def _config(folder: Path) -> Json:
    found = json.loads((folder / "config.json").read_text("utf-8"))
    return found if isinstance(found, dict) else {}


def _counts(config: Json) -> dict[str, int]:
    inner = config.get("text_config")
    found = dict(_counts(inner)) if isinstance(inner, dict) else {}
    return found | {
        key: value
        for key in _COUNTS
        if isinstance(value := config.get(key), int) and not isinstance(value, bool)
    }


def _cut_config(config: Json, counts: set[int], n: int) -> None:
    """Make every count at most ``n``, and every list with one entry a layer as long as that."""
    for key, value in config.items():
        if key in _COUNTS and isinstance(value, int):
            config[key] = min(value, n)
        elif isinstance(value, list) and len(value) in counts and len(value) > n:
            config[key] = value[:n]
        elif isinstance(value, dict) and key == "text_config":
            _cut_config(value, counts, n)


def _kept(header: Json, counts: set[int], n: int) -> Iterable[str]:
    """Return the tensors that stay: those of no layer, and those of the first ``n``.

    The first number in a name is the layer's, where its stack has as many layers as the config
    says; the experts of a layer come behind it.
    """
    stacks: dict[str, int] = {}
    for name in header:
        if found := _NUMBERED.match(name):
            stacks[found[1]] = max(stacks.get(found[1], 0), int(found[2]) + 1)
    for name in header:
        found = _NUMBERED.match(name)
        if found is None or stacks[found[1]] not in counts or int(found[2]) < n:
            yield name


def _read(path: Path) -> tuple[Json, bytes]:
    """Return the header and the bytes behind it."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def _write(path: Path, header: Json, data: bytes, kept: set[str]) -> None:
    """Write the tensors ``kept``, in the order of their bytes."""
    new, places = _closed_up(header, kept)
    text = json.dumps(new, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [data[start:stop] for start, stop in places]
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def _closed_up(header: Json, kept: set[str]) -> tuple[Json, list[tuple[int, int]]]:
    """Return the header of the tensors ``kept`` without gaps, and where their bytes were."""
    wanted = [(name, told) for name, told in header.items() if name in kept and name != _META]
    wanted.sort(key=lambda of: of[1]["data_offsets"])
    new: Json = {_META: header[_META]} if _META in header else {}
    places, end = [], 0
    for name, told in wanted:
        start, stop = told["data_offsets"]
        places.append((start, stop))
        new[name] = told | {"data_offsets": [end, end + stop - start]}
        end += stop - start
    return new, places


def _write_header(path: Path, header: Json) -> None:
    """Write a header with a line for each tensor; white space is allowed in one."""
    lines = (f"{json.dumps(name)}: {json.dumps(told)}" for name, told in header.items())
    path.write_text("{" + ",\n ".join(lines) + "}\n", "utf-8")


_META = "__metadata__"
