"""Unified diffs applied to a copy of a checkpoint's folder; the checkpoint is not changed.

unidiff parses the patches. They are applied without fuzz: every context line of a hunk must match.
A hunk may apply at another line than it names, the nearest one where it fits, as in patch(1).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from samebits.base.checkpoint import read_small
from samebits.base.errors import PatchError, shown
from samebits.base.filestate import below

_NO_FILE = "/dev/null"
_MAX_COPIED = 1 << 20
"""Bytes up to which a file is copied and not linked. Code that is loaded through a link may look
for its sibling files at the link's target, where they are not patched."""


def patched_files(folder: Path, patches: Iterable[Path]) -> dict[str, str | None]:
    """Return the new text of each file that the patches change, by its path inside ``folder``.

    None is the text of a file that they remove. Nothing is written.

    Raises:
        PatchError: a patch cannot be read, leaves the folder, or does not apply.

    """
    files: dict[str, str | None] = {}
    for patch in patches:
        for change in _read(patch):
            name = _name_of(change, patch)
            before = files[name] if name in files else _read_text(folder / name, name, patch)
            files[name] = _apply_change(before, change, name, patch)
    return files


def write_patched(folder: Path, patches: Sequence[Path], out: Path) -> None:
    """Create ``out``, a patched copy of the folder; large files are links where possible.

    It is created atomically. Raises PatchError as :func:`patched_files` does.
    """
    files = patched_files(folder, patches)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    temporary.chmod(0o755)
    try:
        for path in filter(Path.is_file, map(Path, below(str(folder)))):
            if (name := path.relative_to(folder).as_posix()) not in files:
                copy_or_link(path, temporary / name)
        for name, text in files.items():
            if text is not None:
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                (temporary / name).write_bytes(text.encode())
        _publish(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: Path, out: Path) -> None:
    try:
        temporary.rename(out)
    except OSError:
        # another run may have created the same folder in the meantime
        if not out.is_dir():
            raise


def copy_or_link(path: Path, target: Path) -> None:
    """Copy a file, or link it if it is large and the platform has links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_size > _MAX_COPIED:
        try:
            target.symlink_to(path.resolve())
        except OSError:  # Windows without the right to make links
            pass
        else:
            return
    shutil.copyfile(path, target)


def _read(patch: Path) -> PatchSet:
    try:
        patch_set = PatchSet(patch.read_bytes().decode("utf-8"))
    except OSError as error:
        msg = f"{shown(patch.name)} cannot be read: {error.strerror or error}"
        raise PatchError(msg) from error
    except (UnidiffParseError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise PatchError(
            f"{shown(patch.name)} is no unified diff ({reason}): write one with diff -u or git diff"
        ) from error
    if not any(patch_set):
        raise PatchError(
            f"{shown(patch.name)} changes nothing that can be patched: "
            "write a diff of text files with diff -u or git diff"
        )
    return patch_set


def _name_of(change: PatchedFile, patch: Path) -> str:
    """Return the path, relative to the folder, of the file that is changed."""
    sides = [n.strip('"') for n in (change.source_file, change.target_file) if n != _NO_FILE]
    name = _common(sides)
    if name is None or not change:
        sides_text = " and ".join(map(shown, sides))
        raise PatchError(
            f"{shown(patch.name)} renames {sides_text}, or holds no hunk for it: "
            "only lines of one file can change: write a removal and a new file instead"
        )
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise PatchError(
            f"{shown(patch.name)} leaves the checkpoint's folder: it changes {shown(name)}: "
            "make the diff inside of the folder"
        )
    return path.as_posix()


def _common(sides: list[str]) -> str | None:
    """Return the path that both sides of a diff name, without ``a/`` and ``b/`` or such folders."""
    if len(sides) == 1:
        name = sides[0]
        return name[2:] if name.startswith(("a/", "b/")) else name
    if len(set(sides)) == 1:
        return sides[0]
    without_first = {name.partition("/")[2] for name in sides}
    return without_first.pop() or None if len(without_first) == 1 else None


def _read_text(path: Path, name: str, patch: Path) -> str | None:
    """Return the text of a file, None if it does not exist."""
    try:
        return read_small(path).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        msg = f"{shown(patch.name)} changes {shown(name)}, which cannot be read: {reason}"
        raise PatchError(msg) from error


def _apply_change(before: str | None, change: PatchedFile, name: str, patch: Path) -> str | None:
    is_new = change.source_file == _NO_FILE
    if is_new != (before is None):
        is_there = "is there already" if is_new else "is not there"
        raise PatchError(
            f"{shown(patch.name)} does not apply: {shown(name)} {is_there}: "
            "was the patch made for another checkpoint, or after another patch?"
        )
    after = _apply_hunks(before or "", change, name, patch)
    return None if change.target_file == _NO_FILE and not after else after


def _apply_hunks(text: str, change: PatchedFile, name: str, patch: Path) -> str:
    """Return the text with every hunk applied."""
    lines = _lines(text)
    free, shift = 0, 0  # the first line that no earlier hunk changed; how far lines have moved
    for number, hunk in enumerate(change, 1):
        old, new = _sides(hunk)
        # a hunk without old lines names the line that it follows
        expected = hunk.source_start - bool(old) + shift
        start = _nearest(lines, old, expected, free)
        if start is None:
            raise PatchError(
                f"{shown(patch.name)} does not apply: hunk {number} of {shown(name)} "
                f"(line {hunk.source_start}): {_mismatch(lines, old, expected)}: "
                "was the patch made for another checkpoint, or after another patch?"
            )
        lines[start : start + len(old)] = new
        free = start + len(new)
        shift += start - expected + len(new) - len(old)
    return "".join(lines)


def _lines(text: str) -> list[str]:
    """Split at line feeds only, as diffs do, and keep them."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def _sides(hunk: Hunk) -> tuple[list[str], list[str]]:
    """Return the lines of a hunk before and after the change."""
    old: list[str] = []
    new: list[str] = []
    last_sides: list[list[str]] = []
    for line in hunk:
        if line.line_type == "\\":  # "No newline at end of file" is about the line before it
            for side in last_sides:
                side[-1] = side[-1].removesuffix("\n")
            continue
        last_sides = [
            side for side, skips in ((old, line.is_added), (new, line.is_removed)) if not skips
        ]
        for side in last_sides:
            side.append(line.value)
    return old, new


def _nearest(lines: list[str], old: list[str], expected: int, free: int) -> int | None:
    """Return the match of the old lines nearest to ``expected``, at ``free`` or later, or None."""
    if not old:
        return expected if free <= expected <= len(lines) else None
    starts = range(free, len(lines) - len(old) + 1)
    matches = [start for start in starts if lines[start : start + len(old)] == old]
    return min(matches, key=lambda start: abs(start - expected), default=None)


def _mismatch(lines: list[str], old: list[str], expected: int) -> str:
    for number, line in enumerate(old, expected):
        if number >= len(lines):
            return f"the file ends before line {number + 1}, {shown(line.rstrip())}"
        if lines[number] != line:
            actual = lines[number].rstrip(os.linesep)
            return f"line {number + 1} is {shown(actual)} and not {shown(line.rstrip())}"
    return "its lines are changed twice"
