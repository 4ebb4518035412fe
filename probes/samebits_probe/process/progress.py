"""How far has a job come: written by the process that does it, read by the process that waits.

A job has no limit on its time, only on its time without progress. What it is at stands in a block of
shared memory, the *board*: a count that grows with every step, the phase and the step, and how long
that step may honestly take. To write it costs some microseconds and no system call, so that it can be
done for every tensor; forked children write to the same board, and a model that closes every
descriptor does not close it. Nothing here touches a model: no hook, no argument of ``generate()``.

A step's allowance comes on top of the limit. It follows from the model: from the bytes that are read,
or from the number of forwards and from what the forwards before them took. While
something is loaded, what the process reads from and writes to a disk is progress, too: a download
has no other sign.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 120.0
"""Seconds without progress, where nothing else is said."""
FACTOR = 10
"""What a step may take, in times of what was measured or estimated: the machine may be busy."""
_SLOWEST = 1e10
"""Floating-point operations in a second of one core; a forward before the first one that was measured
is allowed :data:`FACTOR` times as long as these take."""
_BYTES_A_SECOND = 20e6
"""What a slow disk reads in a second."""
_OF_A_PATCH = 256
"""Numbers of a picture or a sound that are one position."""
_MOVED = 1 << 20
"""Bytes from or to a disk that count as progress."""
_NESTED = 5.0
"""Seconds by which who waits for a forked child is more patient for each process between them: the
nearest one ends it, and what it waited for is all that is lost."""
LOOK = 0.25
"""Seconds between two looks at a board."""

_HEAD = struct.Struct("<QQdddB")
"""Beats, forwards, limit, the longest forward so far and the longest for one position, slot shown."""
_SLOT = struct.Struct("<dBBqQQ120s120s")
_SIZE = _HEAD.size + 2 * _SLOT.size


class Step(NamedTuple):
    """What a process is at."""

    beats: int
    """Grows with every step."""
    phase: str
    what: str
    """What the step is about, such as the name of a tensor; '' if nothing."""
    step: int
    of: int
    """How many steps the phase has; 0 if it does not count them."""
    allowance: float
    """Seconds beyond the limit that the step may take."""
    moves: bool
    """True if it reads or writes files, so that this counts as progress."""
    depth: int
    """How many processes stand between the job's and the one that wrote it."""
    pid: int

    @property
    def place(self) -> str:
        """The step in words, such as ``layers.3.weight, 31 of 350``; '' if there is none."""
        numbered = f"{self.step} of {self.of}" if self.of else ""
        return ", ".join(filter(None, (self.what, numbered)))


class Board:
    """The shared memory that one job and its children write to."""

    def __init__(self, limit: float = LIMIT, memory: mmap.mmap | None = None) -> None:
        self._memory = mmap.mmap(-1, _SIZE) if memory is None else memory
        if memory is None:
            self._begin(limit)

    @classmethod
    def at(cls, path: Path, limit: float | None = None) -> Board:
        """Return the board in a file, a new one if a limit is given: the way without fork."""
        if limit is not None:
            path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            board = cls(memory=mmap.mmap(file.fileno(), _SIZE))
        if limit is not None:
            board._begin(limit)
        return board

    def _begin(self, limit: float) -> None:
        _HEAD.pack_into(self._memory, 0, 0, 0, limit, 0.0, 0.0, 0)
        self.write(Step(0, "start", "", 0, 0, 0.0, moves=False, depth=0, pid=os.getpid()))

    def write(self, step: Step) -> None:
        """Put a step on the board; whoever reads meanwhile reads the one before."""
        slot = 1 - self._head[5]
        _SLOT.pack_into(
            self._memory,
            _HEAD.size + slot * _SLOT.size,
            step.allowance,
            step.moves,
            min(step.depth, 255),
            step.pid,
            max(step.step, 0),
            max(step.of, 0),
            _bytes(step.phase),
            _bytes(step.what),
        )
        self._write_head(slot=slot)

    def beat(self, forwards: int = 0) -> None:
        """Say that the step goes on, and how many forwards of a model it has had."""
        self._write_head(forwards=forwards)

    def took(self, seconds: float, positions: int) -> None:
        """Note what one plain forward over so many positions took."""
        self._write_head(longest=seconds, per_position=seconds / max(positions, 1))

    def _write_head(
        self,
        *,
        forwards: int = 0,
        longest: float = 0.0,
        per_position: float = 0.0,
        slot: int | None = None,
    ) -> None:
        beats, before, limit, one, each, shown = self._head
        _HEAD.pack_into(
            self._memory,
            0,
            beats + 1,
            before + forwards,
            limit,
            max(one, longest),
            max(each, per_position),
            shown if slot is None else slot,
        )

    @property
    def _head(self) -> tuple[int, int, float, float, float, int]:
        beats, forwards, limit, longest, per_position, slot = _HEAD.unpack_from(self._memory)
        return beats, forwards, limit, longest, per_position, slot

    def read(self) -> Step:
        """Return what is on the board."""
        beats, *_, shown = self._head
        fields = _SLOT.unpack_from(self._memory, _HEAD.size + shown * _SLOT.size)
        allowance, moves, depth, pid, step, of, phase, what = fields
        return Step(
            beats=beats,
            phase=_text(phase),
            what=_text(what),
            step=step,
            of=of,
            allowance=allowance if 0 <= allowance < float("inf") else 0.0,
            moves=bool(moves),
            depth=depth,
            pid=pid,
        )

    @property
    def forwards(self) -> int:
        """Forwards of a model so far, those of children included."""
        return self._head[1]

    @property
    def limit(self) -> float:
        """Seconds without progress after which the job is ended."""
        return self._head[2]

    @property
    def longest(self) -> float:
        """Seconds of the longest plain forward so far; 0.0 before the first."""
        return self._head[3]

    @property
    def per_position(self) -> float:
        """The most seconds that a plain forward took for each of its positions."""
        return self._head[4]

    def close(self) -> None:
        """Let the memory go."""
        self._memory.close()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:120]


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("utf-8", "ignore")


# A process does one job at a time, and what it calls need not hand these on: a child has a board of
# its own, which its parent made for it.
_board = Board()
_depth = 0
_parameters = 0
_last = _board.read()


def use(board: Board) -> None:
    """Write to this board from now on."""
    global _board  # noqa: PLW0603  one for each process, as said above
    _board = board
    _put(board.read())


def board() -> Board:
    """Return the board that this process writes to."""
    return _board


def one_deeper() -> None:
    """Say that this process is a child of the one that wrote so far."""
    global _depth  # noqa: PLW0603  one for each process, as said above
    _depth += 1
    _put(_board.read())  # and not what was the step when this process was made


def resume() -> None:
    """Say that this process goes on with its step, after one that it waited for."""
    _put(_last)


def depth() -> int:
    """Return how many processes stand between the job's and this one."""
    return _depth


def begin(phase: str) -> None:
    """Say that a phase begins."""
    _put(_last._replace(phase=phase, what="", step=0, of=0, allowance=0.0, moves=False))


def tick(
    what: str = "", step: int = 0, of: int = 0, *, allowance: float = 0.0, moves: bool = False
) -> None:
    """Say that the next step of the phase begins."""
    _put(_last._replace(what=what, step=step, of=of, allowance=allowance, moves=moves))


def _put(step: Step) -> None:
    global _last  # noqa: PLW0603  one for each process, as said above
    _last = step._replace(depth=_depth, pid=os.getpid())
    _board.write(_last)


def beat() -> None:
    """Say that the step goes on: for loops of ours whose length is not known before."""
    _board.beat()


def moving(n_bytes: int) -> float:
    """Return the allowance of a step that reads, writes or hashes so many bytes."""
    return n_bytes / _BYTES_A_SECOND


def loading(where: str, what: str = "load") -> None:
    """Say that the checkpoint in a folder, or of the hub, is loaded as the next step."""
    tick(what, allowance=moving(size_of_files(where)), moves=True)


def size_of_files(where: str) -> int:
    """Return the bytes of a folder's weights; 0 for a hub id."""
    kinds = (".safetensors", ".bin")
    with contextlib.suppress(OSError):
        return sum(p.stat().st_size for p in Path(where).glob("*") if p.suffix in kinds)
    return 0


def loaded(model: Any) -> None:
    """Take the size of a model for what its first forward may take."""
    global _parameters  # noqa: PLW0603  one for each process, as said above
    _parameters = sum(p.numel() for p in model.parameters())


def expected(n_positions: int) -> float:
    """Return the seconds that a plain forward over so many positions takes, at most."""
    if _board.longest:
        return max(_board.longest, _board.per_position * n_positions)
    return 2.0 * _parameters * n_positions / _SLOWEST


@contextlib.contextmanager
def forward(
    kwargs: Any, what: str | None = None, *, times: float = 1.0, plain: bool = False
) -> Iterator[None]:
    """Say that one forward runs inside; what a ``plain`` one takes is the measure of later ones.

    Without ``what`` it belongs to the step that was begun. ``times`` is how much dearer it is than a
    plain one: watched, traced, or in float64.
    """
    n = positions(kwargs)
    _put(_within(what)._replace(allowance=FACTOR * times * expected(n)))
    started = time.perf_counter()
    yield
    if plain:
        _board.took(time.perf_counter() - started, n)
    _board.beat(1)


@contextlib.contextmanager
def forwards(
    n: int, kwargs: Any = None, what: str | None = None, *, times: float = 1.0
) -> Iterator[None]:
    """Say that up to ``n`` forwards run inside, none of which is seen to begin: a ``generate()``."""
    longest = expected(positions(kwargs))
    _put(_within(what)._replace(allowance=FACTOR * times * n * longest))
    yield
    _board.beat(n)


def _within(what: str | None) -> Step:
    step = _last if what is None else _last._replace(what=what, step=0, of=0)
    return step._replace(moves=False)


def positions(kwargs: Any) -> int:
    """Return for how many positions a model computes, at most; of pictures and sounds by size."""
    tensors = (value for value in (kwargs or {}).values() if hasattr(value, "numel"))
    sizes = (t.numel() // (_OF_A_PATCH if t.is_floating_point() else 1) for t in tensors)
    return max(sizes, default=1) or 1


class Watcher:
    """Who waits for a process looks at its board now and then."""

    def __init__(self, board: Board, depth: int) -> None:
        self.board = board
        self.step = board.read()
        self._depth = depth
        """Of the process that is waited for."""
        self._since = time.monotonic()
        self._cpu: float | None = None
        self._moved: int | None = None

    def look(self) -> Step:
        """Read the board, and note whether anything was done since the last look."""
        step = self.board.read()
        moved = _moved(step.pid) if step.moves else None
        if step.beats != self.step.beats or self._has_moved(moved):
            self._since, self._cpu, self._moved = time.monotonic(), None, moved
        elif self._cpu is None:
            self._cpu, self._moved = cpu_of(step.pid), moved
        self.step = step
        return step

    def _has_moved(self, moved: int | None) -> bool:
        return moved is not None and self._moved is not None and moved - self._moved >= _MOVED

    @property
    def quiet(self) -> float:
        """Seconds since the last progress that was seen."""
        return time.monotonic() - self._since

    def is_overdue(self) -> bool:
        """Return True if the step takes longer than it may."""
        self.look()
        return self.quiet > self.patience

    @property
    def patience(self) -> float:
        """Seconds that the step may take."""
        limit = self.board.limit
        between = max(0, self.step.depth - self._depth)
        return limit + self.step.allowance + between * min(_NESTED, limit / 2)

    def stalled(self) -> str:
        """Return in words for how long there was no progress."""
        return f"no progress for {self.quiet:.0f} s"

    def meanwhile(self) -> str:
        """Return in words what the CPU did: what only is slow is told from what waits."""
        if self._cpu is None:
            return ""
        cpu = cpu_of(self.step.pid) - self._cpu
        # a process that polls now and then computes nothing
        if cpu < self.quiet / 20:
            return "it used no CPU: it waits for something"
        return f"it used {cpu:.1f} s of CPU: it computes"

    def place(self) -> str:
        """Return in words what it is at: ``phase greedy long (3 of 12)``."""
        return f"phase {self.step.phase}" + (f" ({self.step.place})" if self.step.place else "")


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0.0 where that cannot be known."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / float(os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError):
        return 0.0


def _moved(pid: int) -> int | None:
    """Return the bytes that a process had from and to disks; None where that cannot be known."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text("utf-8").splitlines()
        fields = dict(line.split(": ") for line in lines)
        return int(fields["read_bytes"]) + int(fields["write_bytes"])
    except (OSError, ValueError, KeyError):
        return None
