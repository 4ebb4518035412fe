"""The cells of a run on a Ray cluster: each task is a shard, which a host on its worker runs.

A task runs the command line of samebits, and that starts the stacks' interpreters as everywhere. Ray is
never in a stack, where its packages would change what is measured. A task whose worker dies is started
again by Ray, and takes up what the store has. Scheduling is Ray's.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import samebits_wire
from samebits.base.errors import SamebitsError
from samebits.matrix.plan import Plan
from samebits.pipeline.resources import Resources, unmet
from samebits.stacks.slots import usable_cores
from samebits_wire.folders import without_folders

LOCAL = "local"
"""The address of a cluster on this machine, with one worker per core."""
MAX_RETRIES = 3
"""How often a task is started again if its worker dies or its host fails."""
CELLS_PER_TASK = 16
"""Cells of one task, so that an import of a stack serves several."""
MODELS_PER_CELL = 20
"""Models of a matrix for each cell of a task, if that makes more: every task reads the whole matrix."""
_POLL = 2.0
"""Seconds between two looks at the tasks, for the line on the terminal."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_HELP = (
    "--on needs Ray, which is an extra: install samebits[ray] on this machine and on the workers, in "
    "the same version."
)


class ClusterError(SamebitsError):
    """A cluster cannot be used."""


def n_tasks(plan: Plan) -> int:
    """Return into how many tasks the cells are cut: one stack each, and at most so many cells."""
    most = max(CELLS_PER_TASK, len(plan.models) // MODELS_PER_CELL)
    cells = Counter(cell.stack for cell in plan.cells)
    return sum(-(-n // most) for n in cells.values())


class Task(NamedTuple):
    """One shard of a run."""

    words: Sequence[str]
    """The command line of samebits."""
    resources: Resources


def run(address: str, tasks: Sequence[Task], folder: Path, say: Callable[[str], None]) -> list[str]:
    """Run tasks on a cluster; return why some failed for good, one line each.

    ``folder`` is where they start, on every worker.

    Raises:
        ClusterError: Ray is not installed, or there is no such cluster.

    """
    try:
        import ray  # noqa: PLC0415  an extra
    except ImportError as error:
        raise ClusterError(_HELP) from error
    path = os.pathsep.join(filter(None, (*_sources(), os.environ.get("PYTHONPATH", ""))))
    started = _connect(ray, address, {"env_vars": {"PYTHONPATH": path}})
    try:
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if address == LOCAL:  # it does not grow: a task that asks for more would wait for ever
            machine = machines[0]
            tasks = [task._replace(resources=task.resources.most(machine)) for task in tasks]
        for line in unmet((task.resources for task in tasks), machines):
            say(line)
        remote = ray.remote(host)  # once: each one is a function of its own to every worker
        numbers = {_start(remote, task, folder): number for number, task in enumerate(tasks, 1)}
        return _failures(ray, numbers, say)
    finally:
        if started:
            ray.shutdown()


def _start(remote: Any, task: Task, folder: Path) -> Any:  # noqa: ANN401  no types without the extra
    options = {"max_retries": MAX_RETRIES, "retry_exceptions": True, **task.resources.options()}
    return remote.options(**options).remote(list(task.words), str(folder))


def host(words: list[str], folder: str) -> None:
    """Run samebits in the worker of a task. Raises RuntimeError if it does not end well."""
    command = [sys.executable, "-m", "samebits", *words]
    ended = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        preexec_fn=_end_with_parent,
    )
    if ended.returncode != 0:
        last = (ended.stdout.strip().splitlines() or ["it printed nothing"])[-1]
        raise RuntimeError(f"samebits {' '.join(words)} ended with {ended.returncode}: {last}")


def _end_with_parent() -> None:
    """End this process when the worker is killed, so that its next try finds nothing at work."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _connect(ray: Any, address: str, runtime_env: dict[str, Any]) -> bool:  # noqa: ANN401  no types without the extra
    """Connect to a cluster; return False if this process was connected before."""
    if ray.is_initialized():
        return False
    fields: dict[str, Any] = {"address": None if address == LOCAL else address}
    if address == LOCAL:
        fields |= {"num_cpus": usable_cores(), "include_dashboard": False}
    try:
        ray.init(**fields, runtime_env=runtime_env, log_to_driver=False, logging_level="error")
    except Exception as error:
        msg = f"the Ray cluster {address} cannot be reached: {without_folders(str(error))}"
        raise ClusterError(msg) from error
    return True


def _failures(ray: Any, numbers: dict[Any, int], say: Callable[[str], None]) -> list[str]:  # noqa: ANN401
    failures, waiting = [], list(numbers)
    while waiting:
        ended, waiting = ray.wait(waiting, num_returns=1, timeout=_POLL)
        for reference in ended:
            try:
                ray.get(reference)
            except Exception as error:  # noqa: BLE001  whatever ended it, its cells run here
                last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                failures.append(
                    f"task {numbers[reference]} of {len(numbers)} failed on the cluster, and its cells "
                    f"ran on this machine: {without_folders(last)}"
                )
        if ended:
            say(f"{len(numbers) - len(waiting):,} of {len(numbers):,} tasks have ended")
    return failures


def _sources() -> list[str]:
    """Return the folders from which workers import samebits: on a cluster it is installed there."""
    installed = {path for path in sys.path if path.endswith("site-packages")}
    folders = (Path(__file__).parents[2], *(Path(path).parent for path in samebits_wire.__path__))
    return [str(folder) for folder in folders if str(folder) not in installed]
