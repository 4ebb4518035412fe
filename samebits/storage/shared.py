"""Results that several machines share, by the digests of what determines them.

An object holds the files of one result, such as both captures of a cell. Its name is the path of the
result below the work folder, which ends in that digest. Its first line is the BLAKE3 of all that
follows, and then comes its own name. So other bytes, a part of the bytes and the object of another
name are noticed, and count as missing.

Nothing that a store does changes a verdict. What fails is tried a few times. After some failures in
a row the run goes on without the store. Both cost time and leave a line in the report.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from blake3 import blake3

from samebits.storage.objects import Objects, first_line

T = TypeVar("T")
Files = dict[str, bytes]
"""Name -> content of the files of one result."""

FORMAT = b"samebits-object"
FORMAT_VERSION = 1
ATTEMPTS = 3
"""How often a request is tried."""
PAUSES = (0.3, 2.0)
"""Seconds before the second and the third try."""
MAX_FAILURES = 3
"""Requests in a row that fail before the store is given up."""
MAX_DAMAGED = 20
"""Damaged objects after which the store is given up."""
DEADLINE = 90.0
"""Seconds after which a request counts as failed, whatever the library under it waits for."""
MAX_OBJECT = 1 << 30
"""Bytes of the largest object; larger results are not shared."""
_AT_ONCE = 8
"""Requests at the same time for the tensors of one result."""


class DamagedError(ValueError):
    """An object is not what was written under its name."""


class SharedStore:
    """A store of several machines, seen from one run. Its methods may be called from any thread."""

    def __init__(
        self,
        address: str,
        objects: Objects,
        *,
        say: Callable[[str], None] = lambda _line: None,
        pauses: Iterable[float] = PAUSES,
        deadline: float = DEADLINE,
    ) -> None:
        self.address = address
        self.problems: list[str] = []
        """What went wrong, one line each, for the report."""
        self._objects = objects
        self._say = say
        self._pauses = (*pauses, 0.0)[: ATTEMPTS - 1]
        self._deadline = deadline
        self._reading, self._writing = _Side(), _Side()
        self._useless: set[str] = set()
        """Objects that are missing or damaged; they are not asked for again."""
        self._damaged: set[str] = set()
        """Objects to replace by the next result of that name."""
        self._present: set[str] = set()
        self._lock = threading.Lock()

    def fetch(self, name: str) -> Files | None:
        """Return the files of a result; None if the store does not have it, whole and in time."""
        if name in self._useless:
            return None
        content = self._try(self._reading, lambda: self._objects.get(name))
        if content is None:
            self._useless.add(name)
            return None
        try:
            files = unpacked(name, content)
        except DamagedError as error:
            self._useless.add(name)
            self.reject(name, str(error))
            return None
        self._present.add(name)
        return files

    def reject(self, name: str, reason: str) -> None:
        """Say once that a fetched result cannot be used; the next one of that name replaces it."""
        with self._lock:
            if name in self._damaged:
                return
            self._damaged.add(name)
            self._present.discard(name)
            n_damaged = len(self._damaged)
            gives_up = n_damaged >= MAX_DAMAGED and not self._reading.lost
            if gives_up:
                self._reading.lost = reason
        if n_damaged < MAX_DAMAGED:
            self._report(f"{name} in the store {self.address} is not used: {reason}")
        elif gives_up:
            self._report(
                f"the store {self.address} is no longer read from in this run: {MAX_DAMAGED} of its "
                f"objects are damaged, the last of them {name}: {reason}"
            )

    def has(self, name: str) -> bool:
        """Return True if the store has a result, as far as this run knows."""
        if name in self._damaged:
            return False
        if name not in self._present and self._try(self._writing, lambda: self._objects.has(name)):
            self._present.add(name)
        return name in self._present

    def push(self, name: str, files: Mapping[str, bytes], *, replace: bool = False) -> bool:
        """Write a result unless there is one; return False if it could not be written.

        A result that turned out to be damaged is replaced.
        """
        if sum(map(len, files.values())) > MAX_OBJECT:
            return False
        replace = replace or name in self._damaged
        if not replace and name in self._present:
            return True
        content = packed(name, files)
        written = self._try(
            self._writing, lambda: self._objects.put(name, content, replace=replace)
        )
        if written is None:
            return False
        self._present.add(name)
        self._damaged.discard(name)
        self._useless.discard(name)
        return True

    def is_damaged(self, name: str) -> bool:
        """Return True if this run could not use what the store has under a name."""
        return name in self._damaged

    def push_all(
        self, results: Mapping[str, Callable[[], Files | None]], *, replace: bool = False
    ) -> bool:
        """Write several results side by side; return False unless all of them are in the store.

        A function that returns None has nothing to write, because its file is gone.
        """
        missing = {n: read for n, read in results.items() if replace or n not in self._present}

        def push(name: str) -> bool:
            files = missing[name]()
            return files is not None and self.push(name, files, replace=replace)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return all(list(pool.map(push, missing)))

    def below(self, prefix: str) -> list[str]:
        """Return the names below a prefix; none if the store does not answer."""
        return self._try(self._reading, lambda: self._objects.below(prefix)) or []

    def _try(self, side: _Side, request: Callable[[], T]) -> T | None:
        """Return the answer of a request; None if it is about a missing object, or fails."""
        if side.lost:
            return None
        reason = ""
        for pause in (*self._pauses, None):
            answer = _answer(request, self._deadline)
            if answer.error is None:
                side.n_failed = 0
                return answer.value
            if isinstance(answer.error, FileNotFoundError):
                side.n_failed = 0
                return None
            reason = f"{type(answer.error).__name__}: {first_line(answer.error)}"
            if pause is None or side.lost:
                break
            time.sleep(pause)
        with self._lock:
            side.n_failed += 1
            gives_up = side.n_failed >= MAX_FAILURES and not side.lost
            if gives_up:
                side.lost = reason
        if gives_up:
            use = "read from" if side is self._reading else "written to"
            self._report(
                f"the store {self.address} is no longer {use} in this run, after {MAX_FAILURES} "
                f"requests that failed {ATTEMPTS} times each: {reason}"
            )
        return None

    def _report(self, line: str) -> None:
        self.problems.append(line)
        self._say(line)


class _Side:
    """The requests in one direction: a store may be readable and not writable."""

    def __init__(self) -> None:
        self.n_failed = 0
        self.lost = ""


class _Answer(NamedTuple, Generic[T]):
    """What a request returned or raised."""

    value: T | None
    error: BaseException | None


def packed(name: str, files: Mapping[str, bytes]) -> bytes:
    """Return the object with the files of one result."""
    contents = [files[key] for key in sorted(files)]
    sizes = {key: len(files[key]) for key in sorted(files)}
    header = json.dumps({"name": name, "files": sizes}, separators=(",", ":")).encode()
    digest = blake3(header + b"\n")
    for content in contents:
        digest.update(content)
    first = b"%s %d %s\n" % (FORMAT, FORMAT_VERSION, digest.hexdigest().encode())
    return b"".join((first, header, b"\n", *contents))


def unpacked(name: str, content: bytes) -> Files:
    """Return the files in an object.

    Raises:
        DamagedError: the object is incomplete, changed, of another name or of another format.

    """
    first, _, rest = content.partition(b"\n")
    words = first.split(b" ")
    if len(words) != 3 or words[0] != FORMAT:
        raise DamagedError("it is no object of samebits, or its beginning is damaged")
    if words[1] != b"%d" % FORMAT_VERSION:
        msg = f"it has format version {words[1].decode('ascii', 'replace')}, and this samebits reads {FORMAT_VERSION}"
        raise DamagedError(msg)
    if blake3(rest).hexdigest().encode() != words[2]:
        raise DamagedError("its content does not match its hash: it is incomplete or was changed")
    line, _, body = rest.partition(b"\n")
    header = json.loads(line)  # its hash is right, so a samebits wrote it
    if header["name"] != name:
        raise DamagedError(f"it is the object {header['name']}")
    files, start = {}, 0
    for key, size in header["files"].items():
        files[key] = body[start : start + size]
        start += size
    return files


def _answer(request: Callable[[], T], deadline: float) -> _Answer[T]:
    """Return what a request returned or raised; a thread that hangs is left behind."""
    answers: list[_Answer[T]] = []

    def run() -> None:
        try:
            answers.append(_Answer(request(), None))
        except BaseException as error:  # noqa: BLE001  a store may raise anything
            answers.append(_Answer(None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(deadline)
    if answers:
        return answers[0]
    return _Answer(None, TimeoutError(f"no answer in {deadline:g} s"))
