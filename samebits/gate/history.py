"""Recorded files of a checkpoint that have changed since, taken from git's history.

A lock has their hashes only. A file that the project has committed is found by its content.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from blake3 import blake3

from samebits.base.digests import digest_of
from samebits.base.git import git, words
from samebits.base.hashes import hashes_of_folder
from samebits.base.patches import copy_or_link
from samebits.records.lock import SHORT
from samebits_wire.vocabularies import is_of_tokenizer

_SUFFIXES = frozenset({".py", ".json", ".jinja", ".txt", ".safetensors", ".bin", ".pt", ".pth"})
"""Ends of the names of files that a model may be made of, beside those of a tokenizer."""
_MAX_COMMITS = 200


def files_of(folder: Path, cache: Path) -> dict[str, str]:
    """Return the files of a checkpoint with their short hashes, by relative path."""
    hashes = hashes_of_folder(folder, cache)
    return {
        Path(name).as_posix(): hash[:SHORT]
        for name, hash in sorted(hashes.items())
        if _is_part(Path(name))
    }


def _is_part(path: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.parts)
    return not is_hidden and (path.suffix in _SUFFIXES or is_of_tokenizer(path.name))


def changed_files(recorded: Mapping[str, str], current: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files that were changed, added or removed."""
    names = dict.fromkeys((*recorded, *current))
    return tuple(sorted(n for n in names if recorded.get(n) != current.get(n)))


def restored(
    folder: Path, recorded: Mapping[str, str], current: Mapping[str, str], root: Path
) -> tuple[Path | None, tuple[str, ...]]:
    """Return a copy of a checkpoint as it was recorded, and the files that git does not have.

    Large files that did not change are links. The copy is None if a file is missing.
    """
    contents: dict[str, bytes] = {}
    for name in changed_files(recorded, current):
        if name not in recorded:
            continue
        content = _from_git(folder / name, recorded[name])
        if content is not None:
            contents[name] = content
    changed = {name for name in recorded if recorded[name] != current.get(name)}
    if missing := tuple(sorted(changed - contents.keys())):
        return None, missing
    out = root / "checkpoints" / f"{folder.name}-{digest_of(dict(recorded))[:12]}"
    out.mkdir(parents=True, exist_ok=True)
    for name in recorded:
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        if name in contents:
            target.write_bytes(contents[name])
        else:
            copy_or_link(folder / name, target)
    return out, ()


def _from_git(path: Path, hash: str) -> bytes | None:
    """Return the content with this hash that a file had in some commit; None if there is none."""
    listed = ("rev-list", f"--max-count={_MAX_COMMITS}", "HEAD", "--", path.name)
    for commit in words(path.parent, *listed):
        content = git(path.parent, "cat-file", "blob", f"{commit}:./{path.name}")
        if content and blake3(content).hexdigest()[:SHORT] == hash:
            return content
    return None
