"""One job of a crossing: a stack saves a model.

It loads the checkpoint and leaves the folder ``out``, completely or not at all, with the files of
``save_pretrained`` and ``saved.json`` (SavedModel in samebits/questions/crossings/records.py). What lies
beside the model, such as its tokenizer, is saved whatever became of the model. With ``makes`` the files are
those of a small made model of the same kind, which the stacks then save and load in place of one that
is too large.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from samebits_probe.model import small
from samebits_probe.model.load import Loaded, Source, load_model, n_bytes
from samebits_probe.process import files, progress
from samebits_probe.process.failure import PhaseFailed, Unknown, phase
from samebits_probe.process.hashing import file_hash
from samebits_probe.questions.crossings import parts
from samebits_probe.questions.crossings.common import begin, head
from samebits_wire.atomic import move_new
from samebits_wire.crossings import SaveJob


def run(job: SaveJob) -> None:
    """Save the model as this stack does, and write the outcome."""
    source = begin(job)
    progress.begin("save")
    out = Path(job["out"])
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        outcome = _save_into(job, source, folder)
        if outcome["outcome"] != "saved":
            _empty(folder)
        outcome |= {} if job["makes"] else {"parts": parts.save(source, folder)}
        if source.trust_remote_code:
            outcome["restored"] = _restore_code(source.where, folder)
        outcome["files"] = _file_hashes(folder)
        files.write_sealed(folder / "saved.json", head("saved", job) | outcome)
        folder.chmod(0o755)  # mkdtemp's 0700 would hide it from the loaders of another user
        move_new(folder, out, "saved.json")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _save_into(job: SaveJob, source: Source, folder: Path) -> dict[str, Any]:
    limit = job["limit"]
    if not job["makes"] and (size := progress.size_of_files(source.where)) > limit:
        return _skipped_as_too_large(size, limit)
    try:
        loaded = load_model(source)
    except Unknown as reason:
        return {"outcome": "absent", "reason": str(reason)}
    except PhaseFailed as failed:
        return {"outcome": "not loaded", "failure": failed.failure}
    if job["makes"]:
        return _fill_with_made(loaded, source, folder)
    return _fill_with_saved(loaded, limit, folder)


def _fill_with_saved(loaded: Loaded, limit: int, folder: Path) -> dict[str, Any]:
    if (size := n_bytes(loaded.model)) > limit:
        return _skipped_as_too_large(size, limit)
    progress.tick("save", allowance=progress.moving(size), moves=True)
    try:
        with phase("save"):
            loaded.model.save_pretrained(folder)
    except PhaseFailed as failed:
        return {"outcome": "failed", "failure": failed.failure}
    return {"outcome": "saved"}


def _fill_with_made(loaded: Loaded, source: Source, folder: Path) -> dict[str, Any]:
    try:
        with small.made(loaded, source) as made:
            shutil.copytree(made.folder, folder, dirs_exist_ok=True)
            return {"outcome": "saved", "made": made.facts}
    except small.NoneMade as reason:
        return {"outcome": "skipped", "reason": str(reason)}


def _skipped_as_too_large(size: int, limit: int) -> dict[str, Any]:
    msg = f"the model has {size / 2**30:.1f} GiB, and up to {limit / 2**30:g} GiB are saved"
    return {"outcome": "skipped", "reason": msg}


def _restore_code(where: str, folder: Path) -> list[str]:
    """Copy the model's own code that ``save_pretrained`` left out; return the names.

    Whether it copies code depends on how the class was registered (custom_object_save in
    dynamic_module_utils.py); the crossing is about weights and config.
    """
    original = Path(where)
    if not original.is_dir():
        return []  # the saved auto_map names the hub's repository
    restored = []
    for file in sorted(original.rglob("*.py")):
        name = file.relative_to(original)
        if not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / name)
            restored.append(name.as_posix())
    path = folder / "config.json"
    if not path.is_file():
        return restored  # the loaders report a missing config
    config = json.loads(path.read_text("utf-8"))
    auto_map = json.loads((original / "config.json").read_text("utf-8")).get("auto_map")
    if auto_map and config.get("auto_map") != auto_map:
        files.write_json(path, config | {"auto_map": auto_map})
        restored.append("auto_map")
    return restored


def _file_hashes(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in paths}


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
