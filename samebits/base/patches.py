"""What is a checkpoint with patches applied: to a copy, so that the checkpoint stays as it is.

unidiff reads the patches; applying them takes no fuzz: every line that a hunk names must be there.
A hunk may stand at another line than it says, the nearest one where it fits, as in patch(1).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from samebits.base.errors import PatchError, shown
from samebits.base.filestate import below

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from unidiff.patch import Hunk, PatchedFile

_NOTHING = "/dev/null"
_SMALL = 1 << 20
"""Bytes up to which a file is copied: code that is loaded through a link may look for its
neighbours where the link points, which is where they are not patched."""


def patched_files(folder: Path, patches: Iterable[Path]) -> dict[str, str | None]:
    """Return the files that the patches change, by their path inside ``folder``: text, or None.

    None stands for a file that is gone. Nothing is written.

    Raises:
        PatchError: a patch cannot be read, leaves the folder, or does not apply.

    """
    files: dict[str, str | None] = {}
    for patch in patches:
        for change in _read(patch):
            name = _name_of(change, patch)
            before = files[name] if name in files else _text(folder / name, name, patch)
            files[name] = _changed(before, change, name, patch)
    return files


def write_patched(folder: Path, patches: Sequence[Path], out: Path) -> None:
    """Make ``out``, the folder with its patches applied; large files are links where possible.

    It is there as a whole or not at all. Raises PatchError as :func:`patched_files` does.
    """
    files = patched_files(folder, patches)
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    aside.chmod(0o755)
    try:
        for path in filter(Path.is_file, map(Path, below(str(folder)))):
            if (name := path.relative_to(folder).as_posix()) not in files:
                _take(path, aside / name)
        for name, text in files.items():
            if text is not None:
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                (aside / name).write_bytes(text.encode())
        _publish(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _publish(aside: Path, out: Path) -> None:
    try:
        aside.rename(out)
    except OSError:
        # another run has made the same folder meanwhile
        if not out.is_dir():
            raise


def _take(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_size > _SMALL:
        try:
            to.symlink_to(path.resolve())
        except OSError:  # Windows without the right to make links
            pass
        else:
            return
    shutil.copyfile(path, to)


def _read(patch: Path) -> PatchSet:
    try:
        read = PatchSet(patch.read_bytes().decode("utf-8"))
    except OSError as error:
        msg = f"{shown(patch.name)} cannot be read: {error.strerror or error}"
        raise PatchError(msg) from error
    except (UnidiffParseError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())
        msg = f"{shown(patch.name)} is no unified diff ({said}): write one with diff -u or git diff"
        raise PatchError(msg) from error
    if not any(read):
        msg = (
            f"{shown(patch.name)} changes nothing that can be patched: "
            "write a diff of text files with diff -u or git diff"
        )
        raise PatchError(msg)
    return read


def _name_of(change: PatchedFile, patch: Path) -> str:
    """Return the path inside the folder of the file that is changed."""
    written = [n.strip('"') for n in (change.source_file, change.target_file) if n != _NOTHING]
    name = _common(written)
    if name is None or not change:
        said = " and ".join(map(shown, written))
        msg = (
            f"{shown(patch.name)} renames {said}, or holds no hunk for it: "
            "only lines of one file can change: write a removal and a new file instead"
        )
        raise PatchError(msg)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        msg = (
            f"{shown(patch.name)} leaves the checkpoint's folder: it changes {shown(name)}: "
            "make the diff inside of the folder"
        )
        raise PatchError(msg)
    return path.as_posix()


def _common(written: list[str]) -> str | None:
    """Return the path that both sides of a diff name, without a/ and b/ or two folders' names."""
    if len(written) == 1:
        name = written[0]
        return name[2:] if name.startswith(("a/", "b/")) else name
    if len(set(written)) == 1:
        return written[0]
    inner = {name.partition("/")[2] for name in written}
    return inner.pop() or None if len(inner) == 1 else None


def _text(path: Path, name: str, patch: Path) -> str | None:
    """Return what a file holds, None where there is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        msg = f"{shown(patch.name)} changes {shown(name)}, which cannot be read: {reason}"
        raise PatchError(msg) from error


def _changed(before: str | None, change: PatchedFile, name: str, patch: Path) -> str | None:
    is_new = change.source_file == _NOTHING
    if is_new != (before is None):
        is_there = "is there already" if is_new else "is not there"
        msg = (
            f"{shown(patch.name)} does not apply: {shown(name)} {is_there}: "
            "was the patch made for another checkpoint, or after another patch?"
        )
        raise PatchError(msg)
    after = _applied(before or "", change, name, patch)
    return None if change.target_file == _NOTHING and not after else after


def _applied(text: str, change: PatchedFile, name: str, patch: Path) -> str:
    """Return the text with every hunk in its place."""
    lines = _lines(text)
    free, shift = 0, 0
    for number, hunk in enumerate(change, 1):
        old, new = _sides(hunk)
        # a hunk without old lines names the line that it stands after
        said = hunk.source_start - bool(old) + shift
        place = _nearest(lines, old, said, free)
        if place is None:
            msg = (
                f"{shown(patch.name)} does not apply: hunk {number} of {shown(name)} "
                f"(line {hunk.source_start}): {_mismatch(lines, old, said)}: "
                "was the patch made for another checkpoint, or after another patch?"
            )
            raise PatchError(msg)
        lines[place : place + len(old)] = new
        free = place + len(new)
        shift += place - said + len(new) - len(old)
    return "".join(lines)


def _lines(text: str) -> list[str]:
    """Split at line feeds alone, as diffs do, and keep them."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def _sides(hunk: Hunk) -> tuple[list[str], list[str]]:
    """Return the lines that a hunk finds, and those that it leaves."""
    old: list[str] = []
    new: list[str] = []
    last: list[list[str]] = []
    for line in hunk:
        if line.line_type == "\\":  # "No newline at end of file" speaks of the line before
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
            continue
        last = [side for side, skips in ((old, line.is_added), (new, line.is_removed)) if not skips]
        for side in last:
            side.append(line.value)
    return old, new


def _nearest(lines: list[str], old: list[str], said: int, free: int) -> int | None:
    """Return where the old lines stand, nearest to where they are said to, not before ``free``."""
    if not old:
        return said if free <= said <= len(lines) else None
    places = range(free, len(lines) - len(old) + 1)
    fitting = [place for place in places if lines[place : place + len(old)] == old]
    return min(fitting, key=lambda place: abs(place - said), default=None)


def _mismatch(lines: list[str], old: list[str], said: int) -> str:
    for place, wanted in enumerate(old, said):
        if place >= len(lines):
            return f"the file ends before line {place + 1}, {shown(wanted.rstrip())}"
        if lines[place] != wanted:
            found = lines[place].rstrip(os.linesep)
            return f"line {place + 1} is {shown(found)} and not {shown(wanted.rstrip())}"
    return "its lines are changed twice"
