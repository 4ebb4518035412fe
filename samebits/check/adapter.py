"""A folder that holds an adapter alone, joined with the model that it names as its base."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from samebits.base.checkpoint import ADAPTER, json_of
from samebits.base.digests import digest_of
from samebits.base.errors import shown
from samebits.base.homes import expanded
from samebits.check import hub
from samebits.matrix.checkpoint import CheckpointError
from samebits.stacks.places import cache_folder

_BASE = "base_model_name_or_path"
_NOT_LINKED = ("README.md", ADAPTER)
"""Files that a load does not read, and the one that is written anew. Hidden files are left out, too."""


def is_alone(folder: Path) -> bool:
    """Return True if a folder holds an adapter and no model, as ``save_pretrained`` of peft writes it."""
    return (folder / ADAPTER).is_file() and not (folder / "config.json").exists()


def joined(adapter: Path, environ: Mapping[str, str]) -> Path:
    """Return a folder with links to the files of the base model and to those of the adapter.

    transformers loads such a folder as the base with the adapter in it, beside peft. Files of the adapter, such as its
    tokenizer, come before those of the base.

    Raises:
        CheckpointError: the base is not named, or it is no folder and the hub does not give it.

    """
    settings = json_of(adapter / ADAPTER)
    settings = settings if isinstance(settings, dict) else {}
    base = _base(adapter, settings)
    name = f"{adapter.absolute().name}-{digest_of(f'{adapter.resolve()} {base.resolve()}')[:12]}"
    folder = cache_folder(environ) / "adapters" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source in (base, adapter):
        _link(source, folder)
    (folder / ADAPTER).write_text(json.dumps(settings | {_BASE: str(folder)}), "utf-8")
    return folder


def _base(adapter: Path, settings: dict[str, object]) -> Path:
    """Return the folder of the base, which a path may name from here or from the adapter's folder."""
    named, revision = settings.get(_BASE), settings.get("revision")
    if not isinstance(named, str) or not named:
        raise CheckpointError(
            f"{shown(str(adapter / ADAPTER))}: {_BASE} is empty, so nothing says which model the adapter belongs to. "
            "Write the folder or the hub id of that model there"
        )
    folders = (expanded(named), adapter / named)
    base = next((folder for folder in folders if (folder / "config.json").is_file()), None)
    base = base or hub.whole_folder(named, revision if isinstance(revision, str) else None)
    if base is None:
        raise CheckpointError(
            f"{shown(str(adapter))} holds an adapter, and its base {shown(named)} is neither a folder with a config.json "
            f"nor on the hub or in its cache. Write the folder of the base as {_BASE} into {ADAPTER}, or merge "
            "the adapter into its model (merge_and_unload of peft), save that, and name its folder"
        )
    return base


def _link(source: Path, folder: Path) -> None:
    for entry in sorted(source.iterdir()):
        link = folder / entry.name
        if entry.name in _NOT_LINKED or entry.name.startswith("."):
            continue
        link.unlink(missing_ok=True)
        link.symlink_to(entry.resolve(), target_is_directory=entry.is_dir())
