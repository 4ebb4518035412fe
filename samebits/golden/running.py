"""Runs a test in an environment: twice as it is, with other seeds, and once with its forwards in float64."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from samebits.golden.records import Watched
from samebits.matrix.spec import StackSpec
from samebits.records.record import read_record
from samebits.stacks.build import StackBuilder
from samebits.stacks.environment import probe_environment
from samebits.stacks.installer import Installer
from samebits.stacks.packages import PackageBuilder, variables_of
from samebits.stacks.places import stacks_folder
from samebits.stacks.process import StackProcess, start_process, tail
from samebits.stacks.slots import Slots, usable_cores
from samebits_wire.jobs import GoldenJob

PYTEST = "pytest"
TIMEOUT = 600.0
"""Seconds without a comparison, a forward or a new test."""
VALUES_LIMIT = 1 << 26


class Runs(NamedTuple):
    """What the runs of a test in one environment left."""

    first: Watched
    again: Watched
    exact: Watched | None


class TestError(Exception):
    """A run left nothing."""


class Runner:
    """Builds environments with pytest beside them, and runs a test in each."""

    def __init__(self, root: Path, environ: Mapping[str, str], max_age: float) -> None:
        self._folder = root / "golden" / uuid.uuid4().hex[:12]
        installer = Installer(environ, max_age=max_age)
        self._installer, self._environ = installer, environ
        self._builder = StackBuilder(root, installer, stacks=stacks_folder(root, environ))
        self._packages = PackageBuilder(root, Path.cwd(), installer)
        self._slots = Slots(usable_cores(), usable_cores())
        self._store = root

    def end(self) -> None:
        """End what builds environments, and remove what the tests left."""
        self._installer.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def run(self, spec: StackSpec, test: str, packages: Sequence[str]) -> Runs:
        """Return what a test leaves in an environment.

        Raises:
            StackError, PackagesError: there is no such environment.
            TestError: pytest did not start.

        """
        stack = await asyncio.to_thread(self._builder.build, spec)
        wanted = (PYTEST, *packages)
        extended = await asyncio.to_thread(
            self._packages.extend, stack, spec.python, wanted, spec.packages
        )
        folder = self._folder / spec.id
        environment = probe_environment(
            self._environ, needs_hub=True, modules_cache=str(folder / "modules")
        )
        process = StackProcess(
            spec.id,
            stack.python,
            environment | variables_of(extended),
            folder / "process.log",
            self._slots,
            start_process,
        )
        try:
            names = ("first", "again", "exact")
            runs = [await self._watched(process, test, folder / name) for name in names]
        finally:
            await process.close()
        first, again, exact = runs
        if isinstance(first, str) or isinstance(again, str):
            raise TestError(first if isinstance(first, str) else str(again))
        return Runs(first, again, None if isinstance(exact, str) else exact)

    async def _watched(self, process: StackProcess, test: str, folder: Path) -> Watched | str:
        job: GoldenJob = {
            "kind": "golden",
            "test": test,
            "folder": str(Path.cwd()),
            "calls": str(folder),
            "float64": folder.name == "exact",
            "seed": int(folder.name == "again"),
            "threads": 1,
            "store": {"root": str(self._store), "limit": VALUES_LIMIT},
            "model": {"source": test, "trust_remote_code": True},
            "result": str(folder / "result.json"),
            "log": str(folder / "log.txt"),
            "timeout": TIMEOUT,
        }
        ended = await process.run(job)
        watched = read_record(Path(job["result"]), Watched)
        if watched is not None:
            return watched
        return f"{ended.reason or 'it left no result'}\n{tail(Path(job['log']))}".strip()
