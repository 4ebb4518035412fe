"""What runs at the same time: a number of jobs, and the number of threads of all of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS cannot restrict them


class Slots:
    """The slots of a run: at most ``jobs`` jobs, and at most one thread per core.

    A job with several threads takes as many cores as it has threads, or all of them if there are
    fewer. More jobs than cores have one thread each, as the user wants it.
    """

    def __init__(self, jobs: int, cores: int | None = None) -> None:
        self.jobs = jobs
        self.cores = max(jobs, cores or 0)
        self._jobs = asyncio.Semaphore(jobs)
        self._cores = asyncio.Semaphore(self.cores)
        # two jobs that collect cores at the same time would each wait for those of the other
        self._collecting = asyncio.Lock()

    @asynccontextmanager
    async def taken(self, threads: int = 1) -> AsyncIterator[None]:
        """Wait until a job of that many threads may run; it runs while the body does."""
        async with self._jobs, AsyncExitStack() as collected:
            async with self._collecting:
                for _ in range(self._width(threads)):
                    await collected.enter_async_context(self._cores)
            yield

    def beside(self, threads: int = 1) -> int:
        """Return the number of such jobs that share the machine, each with an equal part of it."""
        return self.jobs if self.jobs < self.cores else -(-self.jobs // self._width(threads))

    def share(self, threads: int = 1) -> float:
        """Return how many of ``jobs`` slots such a job takes from the others."""
        return self.jobs / self.beside(threads)

    def _width(self, threads: int) -> int:
        return min(threads, self.cores)
