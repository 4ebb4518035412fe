"""A model that the command line names: a folder, or an id on the hub; and what its config says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from samebits.base.errors import SamebitsError, nearest, shown
from samebits.base.homes import expanded
from samebits.check import hub
from samebits.matrix.values import NAME_LENGTH

_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?(@[^@\s]+)?", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAMED = 5
_WEIGHTS = (".safetensors", ".bin", ".h5", ".msgpack")


class ModelError(SamebitsError):
    """A model cannot be used; the message says what to name instead."""


class NamedModel(NamedTuple):
    """A model and what its config.json says."""

    name: str
    """A name for reports and for matrix.yaml."""
    config: dict[str, Any]
    path: str | None = None
    """Its folder as it was typed; None for a model on the hub."""
    hub: str | None = None
    revision: str | None = None
    """The commit, if the hub or its cache says it; else the revision that was asked for."""
    size: int | None = None
    """Bytes of its files; None if they are not on this machine."""

    @property
    def typed(self) -> str:
        """The model as one word of a command line."""
        if self.hub is None:
            return str(self.path)
        return f"{self.hub}@{self.revision}" if self.revision else self.hub

    @property
    def has_code(self) -> bool:
        """True if its config points to Python code that comes with the checkpoint."""
        return bool(self.config.get("auto_map"))

    @property
    def saved_with(self) -> str | None:
        """The release of transformers that saved it; None if config.json does not say."""
        version = self.config.get("transformers_version")
        return version if isinstance(version, str) else None

    @property
    def kind(self) -> str:
        """Its class and model_type, as far as config.json says."""
        listed = self.config.get("architectures")
        classes = [str(name) for name in listed] if isinstance(listed, list) else []
        model_type = self.config.get("model_type")
        words = [", ".join(classes), f"({model_type})" if model_type else ""]
        return " ".join(filter(None, words)) or "class not known"


def read_model(text: str, *, offline: bool = False) -> NamedModel:
    """Return the model that a word of the command line names: a folder, or an id on the hub.

    A folder comes first, as in from_pretrained. With ``offline``, a model on the hub may do without
    its config if the hub cannot be reached.

    Raises:
        ModelError: there is no such model, or its config cannot be read.

    """
    path = expanded(text)
    looks_like_path = text.startswith(("/", ".", "~")) or text.endswith("/") or "\\" in text
    if path.exists() or looks_like_path or not _HUB_ID.fullmatch(text):
        return read_folder(path)
    return _of_the_hub(text, offline=offline)


def read_folder(path: Path) -> NamedModel:
    """Return the model in a folder. Raises ModelError."""
    _check_folder(path)
    files = [file for file in path.iterdir() if file.is_file()]
    return NamedModel(
        name=fitting_name(path.absolute().name),
        config=_read_config(path / "config.json"),
        path=str(path),
        size=sum(file.stat().st_size for file in files if file.suffix in _WEIGHTS),
    )


def fitting_name(text: str) -> str:
    """Return a name that matrix.yaml allows, as close to a text as possible."""
    return _NOT_IN_NAMES.sub("-", text).strip("-._")[:NAME_LENGTH] or "model"


def _of_the_hub(text: str, *, offline: bool) -> NamedModel:
    id_, _, revision = text.partition("@")
    name = fitting_name(id_.rpartition("/")[2])
    try:
        file = hub.config_file(id_, revision or None)
    except hub.HubError as error:
        if offline and error.is_offline:
            return NamedModel(name, {}, hub=id_, revision=revision or None)
        folders = [entry.name for entry in Path().iterdir() if entry.is_dir()]
        near = nearest(id_, folders) if folders else ""
        local = f"\nNo folder of that name is here either{f'; {near}' if near else ''}"
        msg = f"{shown(text)}: {error}{local if error.is_unknown else ''}"
        raise ModelError(msg) from error
    return NamedModel(
        name=name,
        config=_read_config(file.path),
        hub=id_,
        revision=file.commit or revision or None,
    )


def _check_folder(path: Path) -> None:
    """Raise ModelError unless a path is a folder with a config.json."""
    if not path.exists():
        parent = path.absolute().parent
        siblings = [entry.name for entry in parent.iterdir()] if parent.is_dir() else []
        near = nearest(path.name, siblings) if siblings else f"there is no folder {parent}, either"
        msg = f"{shown(str(path))} does not exist: {near}"
        raise ModelError(msg)
    if not path.is_dir():
        msg = f"{shown(str(path))} is a file: name the folder that contains it, {path.parent}"
        raise ModelError(msg)
    if not (path / "config.json").is_file():
        raise ModelError(_without_config(path))


def _without_config(path: Path) -> str:
    """Return what is wrong with a folder without config.json, and which folder is probably meant."""
    fault = f"{shown(str(path))} contains no config.json, so it is no checkpoint of transformers"
    if (path / "adapter_config.json").is_file():
        return (
            f"{shown(str(path))} holds an adapter and not a model: merge it into its model "
            "(merge_and_unload of peft), save that, and name its folder"
        )
    folders = sorted(file.parent for file in path.glob("*/config.json"))
    if not folders:
        return f"{fault}: name a folder that save_pretrained wrote"
    listed = ", ".join(map(str, folders[:_MAX_NAMED]))
    more = " …" if len(folders) > _MAX_NAMED else ""
    return f"{fault}, but folders in it are: name one of {listed}{more}"


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        msg = (
            f"{path}:{error.lineno}:{error.colno}: this is not valid JSON: {error.msg}. Usually the "
            "file was edited by hand, or its download was cut off: repair it, or download it again"
        )
        raise ModelError(msg) from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"{path}: this file cannot be read: {reason}"
        raise ModelError(msg) from error
    if not isinstance(config, dict):
        msg = f'{path}:1:1: a config is a mapping, as in {{"model_type": "llama"}}'
        raise ModelError(msg)
    return config
