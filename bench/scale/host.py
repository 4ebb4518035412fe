"""Hosts of the simulation: samebits itself, but for the stacks, whose processes are fake.

``python -m bench.scale.host cluster MATRIX STORE`` sends all cells to Ray, ``… task WORDS`` is one task
there, and ``… head WORDS`` is the run that takes all of them. ``… submit MATRIX STORE`` sends them as tasks
of the least size that do nothing. Each leaves what it took in the folder ``took`` above that of its matrix.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.memory import anonymous_bytes, descendants
from samebits import cli
from samebits.base.digests import digest_of
from samebits.matrix.spec import StackSpec
from samebits.pipeline import cluster, opening, run
from samebits.pipeline.order import Order
from samebits.pipeline.scheduler import Scheduler
from samebits.stacks import probes
from samebits.stacks.build import Stack
from samebits.terminal.progress import Progress
from samebits.text.terminal import PLAIN

COMMON = "common.json"
"""File with what all captures have in common, beside the folders of the matrices."""


class _Lines(Progress):
    """Prints what a run notes."""

    def note(self, text: str) -> None:
        print(text, flush=True)


class _Watched:
    """What this process took until its first stack, and in all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = time.monotonic()
        self._start: float | None = None

    def built(self, spec: StackSpec) -> Stack:
        """Return a stack whose interpreter runs nothing but the fake."""
        if self._start is None:
            self._start = _cpu()
        folder = self._folder / "stacks" / spec.id / "bin"
        lock = f"transformers=={spec.transformers}\n"
        return Stack(
            id=spec.id,
            python=str(folder / "python"),
            lock=lock,
            lock_digest=digest_of(lock),
            packages={"transformers": spec.transformers, "torch": "2.13.0"},
            architectures=(),
        )

    def leave(self, kind: str, code: int, **more: Any) -> None:
        """Write what it took."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        wall = time.monotonic() - self._started
        took = {
            "kind": kind,
            "code": code,
            "start": self._start,
            "cpu": _cpu(),
            "wall": wall,
            "peak": peak,
        }
        path = self._folder / "took" / f"{kind}-{uuid.uuid4().hex[:12]}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(took | more), "utf-8")


def _cpu() -> float:
    """Return the CPU seconds of this process and of those that it waited for."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _as_samebits(kind: str, words: Sequence[str]) -> int:
    """Run a command line of samebits with fake stacks."""
    watched = _Watched(Path(words[words.index("--matrix") + 1]).parents[1])
    probes.STACK = Path(__file__).with_name("fake_stack.py")
    setattr(opening, "Scheduler", partial(Scheduler, builder=watched.built))  # noqa: B010
    code = cli.main(words, os.environ)
    watched.leave(kind, code)
    return code if code in {2, 3} else 0  # what the cells show is no failure of the simulation


def task(words: list[str], folder: str) -> None:
    """Run one task; Ray calls this in place of samebits.pipeline.cluster.host."""
    command = [sys.executable, "-m", "bench.scale.host", "task", *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, check=False, text=True)
    if ended.returncode:
        raise RuntimeError((ended.stdout + ended.stderr)[-2000:])


def nothing(_words: list[str], _folder: str) -> None:
    """Be a task that only Ray's scheduler has work with."""


def _on_cluster(kind: str, matrix: Path, store: str) -> int:
    """Send all cells to a local cluster of Ray, and wait for them."""
    watched = _Watched(matrix.parents[1])
    setattr(cluster, "host", task if kind == "cluster" else nothing)  # noqa: B010
    if kind == "submit":
        cluster.MODELS_PER_CELL = sys.maxsize
    else:  # a task for each environment: what a start takes is told apart, and is no rate of cells
        cluster.CELLS_PER_TASK = sys.maxsize
    order = Order(matrix=matrix, store=store, on="local", jobs=1, level="quick")
    of_ray, tasks = [0], [0]

    def progress(total: int) -> Progress:
        shown = _Lines(total, time.monotonic, PLAIN)
        note = shown.note

        def counted(text: str) -> None:
            note(text)
            tasks[0] += 1
            if tasks[0] % 50 == 1:  # to look at all processes takes longer than an empty task
                of_ray[0] = max(of_ray[0], _bytes_of_head())

        shown.note = counted  # type: ignore[method-assign]
        return shown

    _, failures = asyncio.run(run.run_on_cluster(order, os.environ, progress))
    print(*failures, sep="\n")
    watched.leave(kind, int(bool(failures)), ray=of_ray[0], tasks=tasks[0])
    return int(bool(failures))


def _bytes_of_head() -> int:
    """Return the memory of the processes that only the head of a Ray cluster has."""
    return sum(anonymous_bytes(pid) for pid in descendants(os.getpid()) if _is_head(pid))


def _is_head(pid: int) -> bool:
    try:
        return b"gcs_server" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:  # it has just ended
        return False


if __name__ == "__main__":
    which, *rest = sys.argv[1:]
    if which in {"cluster", "submit"}:
        sys.exit(_on_cluster(which, Path(rest[0]), rest[1]))
    sys.exit(_as_samebits(which, rest))
