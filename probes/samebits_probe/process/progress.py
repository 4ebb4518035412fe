"""Progress of a job, written by the process that runs it and read by the process that waits.

A job has no limit on its time, only on its time without progress. Its state is in a block of shared
memory, the *board*: a count that grows with every step, the phase and the step, and how long that
step is expected to take. Writing it takes some microseconds and no system call, so it can be done
for every tensor. Forked children write to the same board, and a model that closes all descriptors
does not close it. Nothing is added to a model: no hook, no argument of ``generate()``.

A step's allowance is added to the limit. It follows from the model: from the bytes that are read,
or from the number of forwards and the seconds of earlier forwards. While a checkpoint is loaded,
bytes read from and written to a disk count as progress, too: a download has no other sign.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LIMIT = 120.0
"""Seconds without progress, unless a job sets another limit."""
FACTOR = 10
"""A step may take this many times its measured or estimated time, as the machine may be busy."""
_MIN_FLOPS = 1e10
"""Floating-point operations per second of a slow core. Until a forward has been measured, the time
of a forward is estimated from it, and :data:`FACTOR` times that is allowed."""
_MIN_BYTES_PER_SECOND = 20e6
"""What a slow disk reads per second."""
_NUMBERS_PER_PATCH = 256
"""Numbers of an image or a sound that count as one position."""
_MIN_MOVED_BYTES = 1 << 20
"""Bytes from or to a disk that count as progress."""
_PATIENCE_PER_PROCESS = 5.0
"""Seconds added to the patience of a waiting process for each process between it and the one that
runs the step. The nearest process then ends it first, and only its result is lost."""
LOOK = 0.25
"""Seconds between two looks at a board."""

_BEATS, _FORWARDS, _LIMIT, _LONGEST, _PER_POSITION, _LATEST, _MOST, _CURRENT = range(8)
"""Words of a board's head: beats, forwards, limit, longest forward so far, longest time per position,
time per position of the latest forward, most positions of one, current slot."""
_HEAD_SIZE = 8 * 8
_SLOT = struct.Struct("<dBBqQQ120s120s")
_SIZE = _HEAD_SIZE + 2 * _SLOT.size
_MAX_READS = 100


class Step(NamedTuple):
    """The step that a process is working on."""

    beats: int
    """Grows with every step."""
    phase: str
    what: str
    """The subject of the step, such as the name of a tensor; '' if there is none."""
    step: int
    of: int
    """How many steps the phase has; 0 if it does not count them."""
    allowance: float
    """Seconds beyond the limit that the step may take."""
    moves: bool
    """True if the step reads or writes files, so that moved bytes count as progress."""
    depth: int
    """How many forks below the job's process the writing process is; 0 for the job's process."""
    pid: int

    @property
    def place(self) -> str:
        """The step in words, such as ``layers.3.weight, 31 of 350``; '' if there is none."""
        numbered = f"{self.step} of {self.of}" if self.of else ""
        return ", ".join(filter(None, (self.what, numbered)))


class Board:
    """The shared memory that one job and its children write to.

    Each word of the head is written by one store of eight bytes. ``struct.pack_into`` zeroes its target
    first, so that a reader could see a limit of 0 seconds and end a job that was well.
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self._memory = mmap.mmap(-1, _SIZE)
        head = memoryview(self._memory)[:_HEAD_SIZE]
        self._counts, self._seconds = head.cast("Q"), head.cast("d")
        self._seconds[_LIMIT] = limit
        self.write(Step(0, "start", "", 0, 0, 0.0, moves=False, depth=0, pid=os.getpid()))

    def write(self, step: Step) -> None:
        """Put a step on the board; a concurrent reader sees the previous step."""
        slot = 1 - self._counts[_CURRENT]
        _SLOT.pack_into(
            self._memory,
            _HEAD_SIZE + slot * _SLOT.size,
            step.allowance,
            step.moves,
            min(step.depth, 255),
            step.pid,
            max(step.step, 0),
            max(step.of, 0),
            _bytes(step.phase),
            _bytes(step.what),
        )
        self._counts[_CURRENT] = slot
        self.beat()

    def beat(self, forwards: int = 0) -> None:
        """Record progress inside the step, and ``forwards`` more forwards of a model."""
        if forwards:
            self._counts[_FORWARDS] += forwards
        self._counts[_BEATS] += 1

    def record_forward(self, seconds: float, positions: int) -> None:
        """Record the seconds of one plain forward over ``positions`` positions."""
        each = seconds / max(positions, 1)
        for word, value in ((_LONGEST, seconds), (_PER_POSITION, each), (_MOST, float(positions))):
            self._seconds[word] = max(self._seconds[word], value)
        self._seconds[_LATEST] = each
        self.beat()

    def read(self) -> Step:
        """Return the current step; it is read again if it was written meanwhile."""
        step = self._look()
        for _ in range(_MAX_READS):
            if self._counts[_BEATS] == step.beats:
                break
            step = self._look()
        return step

    def _look(self) -> Step:
        beats = self._counts[_BEATS]
        fields = _SLOT.unpack_from(self._memory, _HEAD_SIZE + self._counts[_CURRENT] * _SLOT.size)
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
        """Forwards of a model so far, including those of children."""
        return self._counts[_FORWARDS]

    @property
    def limit(self) -> float:
        """Seconds without progress after which the job is ended."""
        return self._seconds[_LIMIT]

    @property
    def longest(self) -> float:
        """Seconds of the longest plain forward so far; 0.0 before the first."""
        return self._seconds[_LONGEST]

    @property
    def settled(self) -> float:
        """Seconds of a plain forward over the most positions so far, at the latest one's pace.

        On a GPU the first forward of each shape also loads kernels, and takes many times as long. On a CPU that is
        busy with other work, one forward may.
        """
        return min(self.longest, self._seconds[_LATEST] * self._seconds[_MOST])

    @property
    def per_position(self) -> float:
        """The most seconds that a plain forward took for each of its positions."""
        return self._seconds[_PER_POSITION]

    def close(self) -> None:
        """Release the memory."""
        self._counts.release()
        self._seconds.release()
        self._memory.close()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:120]


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("utf-8", "ignore")


# Globals, because a process runs one job at a time: functions need not pass the board on. The
# parent creates the board of a child.
_board = Board()
_depth = 0
_parameters = 0
_last_step = _board.read()


def use(board: Board) -> None:
    """Write to this board from now on."""
    global _board  # noqa: PLW0603  one for each process, see above
    _board = board
    _put(board.read())


def board() -> Board:
    """Return the board that this process writes to."""
    return _board


def enter_child() -> None:
    """Record that this process is a child of the process that wrote to the board so far."""
    global _depth  # noqa: PLW0603  one for each process, see above
    _depth += 1
    _put(_board.read())  # the step may have changed since the fork


def resume() -> None:
    """Restore this process's step on the board after waiting for a child."""
    _put(_last_step)


def depth() -> int:
    """Return how many forks below the job's process this process is."""
    return _depth


def begin(phase: str) -> None:
    """Begin a phase."""
    _put(_last_step._replace(phase=phase, what="", step=0, of=0, allowance=0.0, moves=False))


def tick(
    what: str = "", step: int = 0, of: int = 0, *, allowance: float = 0.0, moves: bool = False
) -> None:
    """Begin the next step of the phase."""
    _put(_last_step._replace(what=what, step=step, of=of, allowance=allowance, moves=moves))


def _put(step: Step) -> None:
    global _last_step  # noqa: PLW0603  one for each process, see above
    _last_step = step._replace(depth=_depth, pid=os.getpid())
    _board.write(_last_step)


def beat() -> None:
    """Record progress inside the step, for loops whose length is not known in advance."""
    _board.beat()


def moving(n_bytes: int) -> float:
    """Return the allowance of a step that reads, writes or hashes ``n_bytes`` bytes."""
    return n_bytes / _MIN_BYTES_PER_SECOND


def loading(where: str, what: str = "load") -> None:
    """Begin a step that loads a checkpoint from a folder or the hub."""
    tick(what, allowance=moving(size_of_files(where)), moves=True)


def size_of_files(where: str) -> int:
    """Return the bytes of a folder's weights; 0 for a hub id."""
    kinds = (".safetensors", ".bin")
    with contextlib.suppress(OSError):
        return sum(p.stat().st_size for p in Path(where).glob("*") if p.suffix in kinds)
    return 0


def loaded(model: Any) -> None:
    """Record a model's size, from which the time of its first forward is estimated."""
    global _parameters  # noqa: PLW0603  one for each process, see above
    _parameters = sum(p.numel() for p in model.parameters())


def expected(n_positions: int) -> float:
    """Return the maximum seconds expected for a plain forward over ``n_positions`` positions."""
    if _board.longest:
        return max(_board.longest, _board.per_position * n_positions)
    return 2.0 * _parameters * n_positions / _MIN_FLOPS


@contextlib.contextmanager
def forward(
    kwargs: Any, what: str | None = None, *, times: float = 1.0, plain: bool = False
) -> Iterator[None]:
    """Run one forward inside a step; the seconds of a ``plain`` one are measured for later ones.

    Without ``what`` it belongs to the current step. ``times`` is its cost relative to a plain
    forward, for example when it is watched, traced, or in float64.
    """
    n = positions(kwargs)
    _put(_within(what)._replace(allowance=FACTOR * times * expected(n)))
    started = time.perf_counter()
    yield
    if plain:
        _board.record_forward(time.perf_counter() - started, n)
    _board.beat(1)


def estimated(kwargs: Any, seconds: float) -> None:
    """Record how long a plain forward of these inputs would take, as if it had been measured."""
    _board.record_forward(seconds, positions(kwargs))


@contextlib.contextmanager
def forwards(
    n: int, kwargs: Any = None, what: str | None = None, *, times: float = 1.0
) -> Iterator[None]:
    """Run up to ``n`` forwards inside a step without separate steps, as in ``generate()``."""
    _put(_within(what)._replace(allowance=FACTOR * times * n * expected(positions(kwargs))))
    yield
    _board.beat(n)


def _within(what: str | None) -> Step:
    step = _last_step if what is None else _last_step._replace(what=what, step=0, of=0)
    return step._replace(moves=False)


def positions(kwargs: Any) -> int:
    """Return the maximum number of positions of the inputs; from the size for images and sounds."""
    tensors = (value for value in (kwargs or {}).values() if hasattr(value, "numel"))
    sizes = (t.numel() // (_NUMBERS_PER_PATCH if t.is_floating_point() else 1) for t in tensors)
    return max(sizes, default=1) or 1


class Watcher:
    """Reads the board of a process at intervals, on behalf of the process that waits for it."""

    def __init__(self, board: Board, depth: int) -> None:
        self.board = board
        self.step = board.read()
        self._depth = depth
        """Depth of the process that is waited for."""
        self._since = time.monotonic()
        self._cpu: float | None = None
        self._bytes_moved: int | None = None

    def look(self) -> Step:
        """Read the board, and record whether there was progress since the last look."""
        step = self.board.read()
        moved = _bytes_moved(step.pid) if step.moves else None
        if step.beats != self.step.beats or self._has_moved(moved):
            self._since, self._cpu, self._bytes_moved = time.monotonic(), None, moved
        elif self._cpu is None:
            self._cpu, self._bytes_moved = cpu_of(step.pid), moved
        self.step = step
        return step

    def _has_moved(self, moved: int | None) -> bool:
        return (
            moved is not None
            and self._bytes_moved is not None
            and moved - self._bytes_moved >= _MIN_MOVED_BYTES
        )

    @property
    def quiet(self) -> float:
        """Seconds since the last observed progress."""
        return time.monotonic() - self._since

    def is_overdue(self) -> bool:
        """Return True if the step takes longer than allowed."""
        self.look()
        return self.quiet > self.patience

    @property
    def patience(self) -> float:
        """Seconds that the step may take."""
        limit = self.board.limit
        between = max(0, self.step.depth - self._depth)
        return limit + self.step.allowance + between * min(_PATIENCE_PER_PROCESS, limit / 2)

    def stalled(self) -> str:
        """Return a phrase for how long there was no progress."""
        return f"no progress for {self.quiet:.0f} s"

    def meanwhile(self) -> str:
        """Return a phrase for the CPU use since then: a slow step differs from a waiting one."""
        if self._cpu is None:
            return ""
        cpu = cpu_of(self.step.pid) - self._cpu
        # a process that polls at intervals uses a little CPU
        if cpu < self.quiet / 20:
            return "it used no CPU: it waits for something"
        return f"it used {cpu:.1f} s of CPU: it computes"

    def place(self) -> str:
        """Return a phrase for the current step: ``phase greedy long (3 of 12)``."""
        return f"phase {self.step.phase}" + (f" ({self.step.place})" if self.step.place else "")


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0.0 where that is unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / float(os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError):
        return 0.0


def _bytes_moved(pid: int) -> int | None:
    """Return the bytes that a process read from and wrote to disks; None where that is unknown."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text("utf-8").splitlines()
        fields = dict(line.split(": ") for line in lines)
        return int(fields["read_bytes"]) + int(fields["write_bytes"])
    except (OSError, ValueError, KeyError):
        return None
