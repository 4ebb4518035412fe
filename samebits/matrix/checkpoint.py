"""What one look at the files of a checkpoint shows, before any environment is built or asked.

A fault here is one that every release runs into: weights that are cut off, a config without
model_type. Whatever only some releases refuse is a result of the run, and no fault.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from samebits.base.checkpoint import json_of, odd_files, read_small
from samebits.base.errors import SamebitsError, shown
from samebits.matrix import known
from samebits.matrix.spec import ModelEntry
from samebits.text.numbers import plural
from samebits_wire.vocabularies import has_no_model

_MAX_NAMED = 3
_MAX_HEADER = 100_000_000
"""Bytes of a safetensors header, as in the library."""
_LENGTH = struct.Struct("<Q")
_POINTER = b"version https://git-lfs.github.com/spec/"
_FOREIGN_WEIGHTS = ("tf_model.h5", "flax_model.msgpack", "model.ckpt.index")
_FOREIGN_ARGUMENTS = {"from_tf", "from_flax", "gguf_file"}
_TEXTS = {".py", ".json", ".jinja", ".md", ".txt", ".gitattributes", "LICENSE"}
"""Suffixes and names of files that hold no weights."""
_DOWNLOAD = "copy or download the file again"


class CheckpointError(SamebitsError):
    """A model cannot be used; the message says what to change, or what to name instead."""


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of config.json. Raises CheckpointError."""
    content = _read_json(path)
    if not isinstance(content, dict):
        raise CheckpointError(f'{path}:1:1: a config is a mapping, as in {{"model_type": "llama"}}')
    return content


def _read_json(path: Path) -> Any:  # noqa: ANN401  any JSON
    try:
        # as text: no release reads another encoding, nor a byte order mark
        return json.loads(read_small(path).decode())
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"{path}:{error.lineno}:{error.colno}: this is not valid JSON: {error.msg}. Usually the "
            "file was edited by hand, or its download was cut off: repair it, or download it again"
        ) from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"{path}: this file cannot be read: {reason}. Usually its copy or download failed: "
            f"{_DOWNLOAD}"
        ) from error


def faults(folder: Path, model: ModelEntry) -> Iterator[str]:
    """Yield what is wrong with the files of a checkpoint, one sentence each.

    ``folder`` is the model's ``path``. A patch may change its config, so that is not looked at then.
    """
    if odd := [*odd_files(folder)]:
        yield from odd
        return
    if has_no_model(folder):
        return
    try:
        config = read_config(folder / "config.json")
        if not model.patch:
            yield from config_faults(str(folder / "config.json"), config, model)
        yield from _weights_faults(folder, config, model)
    except CheckpointError as error:
        yield str(error)


def further_steps(folder: Path) -> Iterator[str]:
    """Yield the modules of a sentence-transformers folder behind its Transformer, as ``Pooling (1_Pooling)``."""
    modules = json_of(folder / "modules.json")
    try:
        for module in modules if isinstance(modules, list) else ():
            name = str(module["type"]).rpartition(".")[2]
            if name != "Transformer":
                yield f"{name} ({module['path']})" if module.get("path") else name
    except (LookupError, TypeError, AttributeError):
        return


def config_faults(where: str, config: dict[str, Any], model: ModelEntry) -> Iterator[str]:
    """Yield what is wrong with a config; ``where`` names it in the message."""
    dtype = config.get("torch_dtype", config.get("dtype"))
    name = dtype.removeprefix("torch.") if isinstance(dtype, str) else "auto"
    if name not in known.DTYPES:
        key = "torch_dtype" if "torch_dtype" in config else "dtype"
        yield f"{where}: {key} {shown(str(dtype))} is no dtype of torch{known.near(name, known.DTYPES)}"
    if brings_class(config, model) or "pretrained_cfg" in config:
        return
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type:
        return
    likely = known.type_of(config.get("architectures"))
    hint = f"; by its architectures it is probably {likely}" if likely else ""
    yield (
        f"{where}: it has no model_type, so no release of transformers can tell what it is{hint}: "
        f'write it there, as in "model_type": "{likely or "llama"}"'
    )


def brings_class(config: dict[str, Any], model: ModelEntry) -> bool:
    """Return True if a model's class may come from code outside of transformers."""
    own = bool(model.imports) or model.model_class is not None
    return own or (model.trust_remote_code and bool(config.get("auto_map")))


def _weights_faults(folder: Path, config: dict[str, Any], model: ModelEntry) -> Iterator[str]:
    if _FOREIGN_ARGUMENTS & model.load.keys():
        return
    names = _weights_names(config, model)
    name = next((name for name in names if (folder / name).is_file()), None)
    if name is None:
        if not brings_class(config, model) or _has_text_alone(folder, model):
            yield _no_weights(folder, names)
    elif name.endswith(".index.json"):
        yield from _shard_faults(folder, name)
    else:
        yield from _damage(folder / name)


def _has_text_alone(folder: Path, model: ModelEntry) -> bool:
    """Return True if a class of one's own has nothing to read: code of the folder that loads as transformers does.

    Else it may read other files.
    """
    if model.imports or model.model_class is not None:
        return False
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    code = [path for path in files if path.suffix == ".py"]
    return (
        bool(code)
        and all(path.suffix in _TEXTS or path.name in _TEXTS for path in files)
        and not any(b"from_pretrained" in read_small(path) for path in code)
    )


def _weights_names(config: dict[str, Any], model: ModelEntry) -> list[str]:
    """Return the files that from_pretrained tries, in its order."""
    variant = model.load.get("variant")
    middle = f".{variant}" if variant else ""
    names = []
    if model.load.get("use_safetensors") is not False:
        names += [f"model{middle}.safetensors", f"model.safetensors.index{middle}.json"]
    if not model.load.get("use_safetensors"):
        names += [f"pytorch_model{middle}.bin", f"pytorch_model.bin.index{middle}.json"]
    explicit = config.get("transformers_weights")
    return [explicit, *names] if isinstance(explicit, str) else names


def _no_weights(folder: Path, names: list[str]) -> str:
    broken = next((name for name in names if os.path.lexists(folder / name)), None)
    if broken is not None:
        return f"{folder / broken} is a link to a file that is not there: {_DOWNLOAD}"
    present = sorted(path.name for path in folder.iterdir())
    shards = [name for name in present if "-of-" in name]
    foreign = [name for name in present if name in _FOREIGN_WEIGHTS]
    ggufs = [name for name in present if name.endswith(".gguf")]
    variants = [name for name in present if name.startswith(("model.", "pytorch_model."))]
    fault = f"{folder} contains no weights: {' or '.join(names[::2])} is missing"
    if shards:
        return f"{fault}, and so is the index of {shards[0]}: copy {names[1]}, too"
    if foreign:
        return (
            f"{folder} contains only weights of TensorFlow or Flax, {foreign[0]}, which no release "
            "from 5.0 on reads: load it with transformers 4.x (from_tf=True or from_flax=True) and "
            "save it again"
        )
    if ggufs:
        return f"{folder} contains only {ggufs[0]}. {GGUF}"
    weights = [name for name in variants if name.endswith((".safetensors", ".bin"))]
    if weights:
        return (
            f"{fault}; {weights[0]} is there, which is read with variant: write load: {{variant: "
            f"{weights[0].split('.')[1]}}} in matrix.yaml, or rename it"
        )
    if misnamed := [name for name in present if name.endswith(".safetensors")]:
        return (
            f"{fault}; {misnamed[0]} is there, a name that from_pretrained does not look for: if it holds the "
            f"tensors of the model under their names in transformers, rename it to {names[0]}"
        )
    return f"{fault}. Usually the copy or the download left it out: copy it, too"


GGUF = (
    "samebits does not read GGUF: transformers would turn it into another model with every tensor "
    "dequantised. Name the folder of the checkpoint that it was made from, with config.json and "
    "safetensors"
)


def _shard_faults(folder: Path, index: str) -> Iterator[str]:
    content = _read_json(folder / index)
    mapping = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(mapping, dict) or not mapping:
        yield f"{folder / index}: it has no weight_map, which says where each tensor is: {_DOWNLOAD}"
        return
    names = sorted({str(name) for name in mapping.values()})
    outside = [name for name in names if _leaves_folder(name)]
    if outside:
        yield (
            f"{folder / index} names {outside[0]}, which lies outside of the folder: samebits reads "
            "nothing there. Copy the file into the folder, or link it there, and name it without a path"
        )
        return
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        listed = ", ".join(missing[:_MAX_NAMED]) + (" …" if len(missing) > _MAX_NAMED else "")
        yield (
            f"{folder / index} names {plural(len(names), 'file')}, and {len(missing)} of them "
            f"{'is' if len(missing) == 1 else 'are'} not there: {listed}. Copy or download what is missing"
        )
    for name in names:
        if name not in missing:
            yield from _damage(folder / name)


def holds_plain_floats(folder: Path) -> bool:
    """Return True if a folder has safetensors, and none of them holds numbers of fewer than 16 bits, or packed ones."""
    dtypes = {dtype for path in folder.glob("*.safetensors") for dtype in _dtypes(path)}
    return bool(dtypes) and dtypes <= _PLAIN


_PLAIN = {"F64", "F32", "F16", "BF16"}


def _dtypes(path: Path) -> set[str]:
    """Return the dtypes in a safetensors file; {""} for one that is damaged."""
    try:
        with path.open("rb") as file:
            length = _LENGTH.unpack(file.read(_LENGTH.size))[0]
            entries = json.loads(file.read(min(length, _MAX_HEADER)))
        return {entry["dtype"] for name, entry in entries.items() if name != "__metadata__"}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, struct.error):
        return {""}


def _leaves_folder(name: str) -> bool:
    return Path(name).is_absolute() or Path(os.path.normpath(name)).parts[:1] == ("..",)


def _damage(path: Path) -> Iterator[str]:
    """Yield what is wrong with one file of weights; of safetensors only the header is read."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_POINTER))
        size = path.stat().st_size
        if start == _POINTER:
            yield f"{path} is a pointer of git-lfs and not the weights: run git lfs pull"
        elif not size:
            yield f"{path} is empty: {_DOWNLOAD}"
        elif path.suffix == ".safetensors":
            yield from _bad_safetensors(path, size)
        elif start.startswith(b"PK") and not zipfile.is_zipfile(path):
            yield f"{path} is cut off ({size:,} bytes, and its end is missing): {_DOWNLOAD}"
    except OSError as error:
        yield f"{path} cannot be read: {error.strerror or error}"


def _bad_safetensors(path: Path, size: int) -> Iterator[str]:
    with path.open("rb") as file:
        start = file.read(_LENGTH.size)
        length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
        header = file.read(length) if length <= min(_MAX_HEADER, size) else b""
    whole = _LENGTH.size + length
    if len(header) < length <= _MAX_HEADER and size > _LENGTH.size:
        yield f"{path} is cut off in its header ({size:,} bytes, the header alone has {whole:,}): {_DOWNLOAD}"
        return
    try:
        entries = json.loads(header)
        end = max(
            (e["data_offsets"][1] for k, e in entries.items() if k != "__metadata__"), default=0
        )
        whole += int(end)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        yield f"{path} is damaged: it does not begin with the header of a safetensors file: {_DOWNLOAD}"
        return
    if size < whole:
        yield f"{path} is cut off ({size:,} of {whole:,} bytes): {_DOWNLOAD}"
    elif size > whole:
        yield f"{path} is damaged: it has {size - whole:,} bytes more than its header names: {_DOWNLOAD}"
