"""Tensors of a checkpoint, read from its files one at a time.

Reads safetensors (one file or sharded) and, weights-only, pickled ``pytorch_model.bin``. A mapped
file keeps its read pages in memory, so it is mapped again after every :data:`MAPPED` bytes.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open

from samebits_probe.model.tensor import dtype_name

if TYPE_CHECKING:
    from samebits_probe.model.load import Source

MAPPED = 64 << 20
"""Bytes read from a file after which its pages in memory are released."""

_LAYOUTS = (
    ("model.safetensors", False),
    ("model.safetensors.index.json", True),
    ("pytorch_model.bin", False),
    ("pytorch_model.bin.index.json", True),
)

_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "U8": "uint8",
    "BOOL": "bool",
}
"""safetensors' names of dtypes -> torch's, without float8."""
_FLOAT8 = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


class NoCheckpoint(Exception):  # noqa: N818  "nothing to trace to" is a result, not an error
    """No checkpoint files were found; the message lists the expected ones."""


_TORCH_REASON_STARTS = (
    "Trying to load",
    "Unsupported",
    "WeightsUnpickler error: Unsupported",
    "Can only",
)
"""Starts of the line with torch's reason, which follows advice to load the file anyway."""


class Refused(Exception):  # noqa: N818  it is the files that are wrong
    """A checkpoint that must not be loaded; the message is the reason."""


def _layouts(variant: str) -> tuple[tuple[str, bool], ...]:
    """Return names of weights files and whether they are an index; with a variant's name in them."""
    if not variant:
        return _LAYOUTS
    return tuple((_with_variant(name, variant), sharded) for name, sharded in _LAYOUTS)


def _with_variant(name: str, variant: str) -> str:
    stem, ending = name.rsplit(".", 1)
    return f"{stem}.{variant}.{ending}"


def refuse_code(source: str, variant: str = "") -> None:
    """Refuse a folder whose pickle holds more than weights.

    transformers 4.48 to 5.23 does not run it either, but 4.48 reports a possible TensorFlow file.
    """
    present = (name for name, _ in _layouts(variant) if (Path(source) / name).is_file())
    name = next(present, "")
    if not name.startswith("pytorch_model"):
        return
    try:
        Checkpoint.find(source, None, variant=variant)
    except pickle.UnpicklingError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        reason = next((line for line in lines if line.startswith(_TORCH_REASON_STARTS)), lines[0])
        raise Refused(
            f"{name} is a pickle that is not weights alone, and its code is not run. Save the state_dict by itself: {reason}"
        ) from error


def refuse_outside(source: str, variant: str = "") -> None:
    """Refuse a folder whose index names files outside of it: transformers would read them."""
    for name, sharded in _layouts(variant):
        path = Path(source) / name
        if not sharded or not path.is_file():
            continue
        for shard in dict.fromkeys(json.loads(path.read_text("utf-8"))["weight_map"].values()):
            shard_path = PurePath(shard)
            if shard_path.is_absolute() or ".." in shard_path.parts:
                raise Refused(f"{name} names {shard!r}, which is not in the model's folder")


class Checkpoint:
    """The tensors of one checkpoint by name."""

    def __init__(self, files: list[Path]) -> None:
        self._file_of: dict[str, Path] = {}
        self._pickled: dict[str, torch.Tensor] = {}
        self._open: dict[Path, Any] = {}
        self._read: Counter[Path] = Counter()
        self.unlisted: tuple[str, ...] = ()
        """Tensors in the shards that the index, which names these shards for others, does not name."""
        for file in files:
            for name in self._read_names(file):
                self._file_of[name] = file

    @classmethod
    def of(cls, source: Source) -> Checkpoint:
        """Return the checkpoint that a source loads. Raises NoCheckpoint as :meth:`find` does."""
        where, folder = source.where, source.subfolder
        return cls.find(where, source.revision, folder=folder, variant=source.weights_variant)

    @classmethod
    def of_or_none(cls, source: Source) -> Checkpoint | None:
        """Return the checkpoint that a source loads; None if nothing there can be traced to."""
        try:
            return cls.of(source)
        except NoCheckpoint:
            return None

    @classmethod
    def adapter_of(cls, source: Source) -> Checkpoint | None:
        """Return the tensors of the adapter that a load is to put into the model; None if there is none."""
        prefix = f"{source.subfolder}/" if source.subfolder else ""
        config, file = (
            _located(source.where, f"{prefix}{name}", source.revision)
            for name in ("adapter_config.json", "adapter_model.safetensors")
        )
        return None if config is None or file is None else cls([file])

    @classmethod
    def find(
        cls, source: str, revision: str | None, *, folder: str = "", variant: str = ""
    ) -> Checkpoint:
        """Return the checkpoint of a folder or of a hub id that is in the local cache.

        ``folder`` is one inside the source, ``variant`` the name as in model.fp16.safetensors.
        """
        prefix = f"{folder}/" if folder else ""
        for name, sharded in _layouts(variant):
            if (path := _located(source, f"{prefix}{name}", revision)) is None:
                continue
            if not sharded:
                return cls([path])
            listed = json.loads(path.read_text("utf-8"))["weight_map"]
            shards = sorted(set(listed.values()))
            located = [_located(source, f"{prefix}{shard}", revision) for shard in shards]
            checkpoint = cls([file for file in located if file is not None])
            checkpoint.unlisted = tuple(sorted(set(checkpoint) - set(listed)))
            return checkpoint
        expected = ", ".join(f"{prefix}{name}" for name, _ in _layouts(variant))
        raise NoCheckpoint(f"none of {expected} in {source}")

    def __len__(self) -> int:
        return len(self._file_of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __contains__(self, name: object) -> bool:
        return name in self._file_of

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        if name in self._pickled:
            return tuple(self._pickled[name].shape)
        return tuple(self._open_file(name).get_slice(name).get_shape())

    def dtypes(self) -> dict[str, int]:
        """Return dtype -> number of tensors, read from the files' headers."""
        return dict(Counter(map(self._dtype, self._file_of)))

    def _dtype(self, name: str) -> str:
        if name in self._pickled:
            return dtype_name(self._pickled[name].dtype)
        stored_name = str(self._open_file(name).get_slice(name).get_dtype())
        return (_DTYPES | _FLOAT8).get(stored_name, stored_name)

    def names_in(self, file_name: str) -> set[str]:
        """Return the names of the tensors in one of the files."""
        return {name for name, file in self._file_of.items() if file.name == file_name}

    def metadata(self, name: str) -> dict[str, str]:
        """Return the metadata of the safetensors file that holds a tensor."""
        return dict(self._open_file(name).metadata() or {})

    @property
    def is_pickled(self) -> bool:
        """True if the tensors are in pickles."""
        return bool(self._pickled)

    def stored(self, name: str) -> dict[str, Any]:
        """Return safetensors' name of the dtype, shape, and bytes per element, without reading it."""
        dtype = self._dtype(name)
        for stored_name, torch_name in _DTYPES.items():
            if torch_name == dtype:
                itemsize = getattr(torch, dtype).itemsize
                return {"dtype": stored_name, "shape": list(self.shape(name)), "itemsize": itemsize}
        raise ValueError(f"{name} is of dtype {dtype}")

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor as it is in the file."""
        if name in self._pickled:
            return self._pickled[name]
        tensor: torch.Tensor = self._open_file(name).get_tensor(name)
        file = self._file_of[name]
        self._read[file] += tensor.nbytes
        if self._read[file] > MAPPED:
            # tensors that were returned keep their own reference to the mapping
            del self._open[file], self._read[file]
        return tensor

    def _open_file(self, name: str) -> Any:
        file = self._file_of[name]
        if file not in self._open:
            self._open[file] = safe_open(str(file), framework="pt")
        return self._open[file]

    def _read_names(self, file: Path) -> list[str]:
        if file.suffix == ".safetensors":
            self._open[file] = safe_open(str(file), framework="pt")
            return list(self._open[file].keys())
        # files from before torch 1.6 are not archives and cannot be mapped
        mapped = zipfile.is_zipfile(file)
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
        self._pickled.update(state)
        return list(state)


def _located(source: str, name: str, revision: str | None) -> Path | None:
    """Return the path of one file of a folder, or of the hub's local cache; None if absent."""
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.exists() else None
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  folders need no hub

    cached = try_to_load_from_cache(source, name, revision=revision)
    return Path(cached) if isinstance(cached, str) else None
