"""Runs the cells of one stack: imports torch and transformers once, then forks a child per job.

Expects one JSON object a line on standard input: ``{"id": …, "kind": "cell" | "build" | "save" |
"load", "log": path, "timeout": seconds, …}``. Answers on standard output, one JSON object a line:
first ``{"ready": machine facts}``, then ``{"id": …, "exit": code or null, "signal": number or
null, "timed_out": bool, "seconds": …}`` as each job ends. End of input ends the process and its
children. What a job computes lies in the files that the job names, never in the answer.

A child is its own process group with its output in ``log``; a segfault, a hang or a
monkey-patch in it touches nothing else. ``--one job.json`` runs one job in this process,
which is how jobs run where there is no fork.

transformers imports most of itself, and torch's compiler, only when a model is loaded: seconds
that every child would pay again. A child therefore leaves the names of the modules that it
imported, and the parent imports them before it forks the next one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

Job = dict[str, Any]


class Child(NamedTuple):
    """A job on its way: its process, the pipe that closes when it ends, and its deadline."""

    job: Job
    pid: int
    pipe: int
    started: float


def perform(job: Job) -> None:
    """Do one job in this process."""
    if job["kind"] == "build":
        import probe_build  # noqa: PLC0415  one job needs one of them

        probe_build.build(job, job["out"])
        return
    if job["kind"] in {"save", "load"}:
        import probe_crossing  # noqa: PLC0415

        probe_crossing.perform(job)
        return
    if job["kind"] == "ladder":
        import probe_ladder  # noqa: PLC0415

        probe_ladder.run(job)
        return
    if job["kind"] == "capsule":
        import probe_capsule  # noqa: PLC0415

        probe_capsule.run(job)
        return
    if job["kind"] == "trace":
        import probe_trace_job  # noqa: PLC0415

        probe_trace_job.run(job)
        return
    if job["kind"] == "graft":
        import probe_graft  # noqa: PLC0415

        probe_graft.run(job)
        return
    import probe_cell  # noqa: PLC0415

    try:
        probe_cell.run(job)
    except Exception as error:  # noqa: BLE001  a defect of a probe is reported like any failure
        traceback.print_exc()
        probe_cell.died(job, error)


def fork(job: Job) -> Child:
    """Start ``job`` in a child process of its own group."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Child(job, pid, reader, time.monotonic())
    os.setsid()
    os.close(reader)
    code = 1
    try:
        _redirect(job["log"])
        known = set(sys.modules)
        perform(job)
        _leave_imports(known, _imports_file(job))
        code = 0
    except BaseException:  # noqa: BLE001  the child ends here, whatever happened
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # no exit handlers: they belong to the parent
        os._exit(code)


_NEVER_LEARNED = ("transformers_modules", "probe_", "__")
"""Code of a model stays in the process of its cell."""


def _imports_file(job: Job) -> Path:
    return Path(job["log"]).with_suffix(".imports")


def _leave_imports(known: set[str], path: Path) -> None:
    """Write the modules that this child imported from packages that its parent has, too."""
    packages = {name.partition(".")[0] for name in known}
    new = [
        name
        for name, module in list(sys.modules.items())
        if name not in known
        and name.partition(".")[0] in packages
        and not name.startswith(_NEVER_LEARNED)
        and getattr(module, "__spec__", None) is not None
    ]
    path.write_text("\n".join(new), "utf-8")


def learn_imports(path: Path) -> None:
    """Import what a child imported, so that the next one finds it there."""
    if not path.exists():
        return
    for name in path.read_text("utf-8").splitlines():
        # what cannot be imported ahead is imported when it is needed, or not at all
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    path.unlink()


def _redirect(log: str) -> None:
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


def finish(child: Child, *, timed_out: bool) -> dict[str, Any]:
    """Reap ``child``, ending its whole group, and return the answer for its job."""
    if timed_out:
        _kill_group(child.pid)
    _, status = os.waitpid(child.pid, 0)
    _kill_group(child.pid)
    os.close(child.pipe)
    return {
        "id": child.job["id"],
        "exit": os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "timed_out": timed_out,
        "seconds": round(time.monotonic() - child.started, 4),
    }


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nothing of the group is left


def spawn(job: Job) -> dict[str, Any]:
    """Run ``job`` in a new interpreter and wait for it: the way without fork."""
    path = Path(job["log"]).with_suffix(".job.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job), "utf-8")
    started, timed_out, code = time.monotonic(), False, None
    with Path(job["log"]).open("wb") as log:
        command = [sys.executable, __file__, "--one", str(path)]
        try:
            code = subprocess.run(
                command, stdout=log, stderr=log, timeout=job["timeout"], check=False
            ).returncode
        except subprocess.TimeoutExpired:
            timed_out = True
    seconds = round(time.monotonic() - started, 4)
    return {
        "id": job["id"],
        "exit": code,
        "signal": None,
        "timed_out": timed_out,
        "seconds": seconds,
    }


def answer(message: dict[str, Any]) -> None:
    """Write one line to the host."""
    print(json.dumps(message), flush=True)


def serve() -> None:
    """Take jobs and answer them until standard input ends."""
    children: dict[int, Child] = {}
    lines = _Lines(sys.stdin.fileno())
    while not lines.ended or children:
        waiting = [] if lines.ended else [lines.descriptor]
        ready, _, _ = select.select([*waiting, *children], [], [], _patience(children))
        if lines.descriptor in ready:
            for line in lines.read():
                child = fork(json.loads(line))
                children[child.pipe] = child
            if lines.ended:
                _end(children)
        for pipe in [pipe for pipe in ready if pipe in children]:
            child = children.pop(pipe)
            answer(finish(child, timed_out=False))
            learn_imports(_imports_file(child.job))
        for pipe in [pipe for pipe, child in children.items() if _overdue(child)]:
            answer(finish(children.pop(pipe), timed_out=True))


def _end(children: dict[int, Child]) -> None:
    """End all children: the host is gone."""
    for child in children.values():
        finish(child, timed_out=True)
    children.clear()


def _overdue(child: Child) -> bool:
    return time.monotonic() - child.started > float(child.job["timeout"])


def _patience(children: dict[int, Child]) -> float | None:
    if not children:
        return None
    now = time.monotonic()
    left = [child.started + float(child.job["timeout"]) - now for child in children.values()]
    return max(0.01, min(left) + 0.01)


class _Lines:
    """Whole lines from a descriptor, without blocking on half of one."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.ended = False
        self._rest = b""

    def read(self) -> list[bytes]:
        chunk = os.read(self.descriptor, 1 << 16)
        self.ended = not chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line for line in lines if line.strip()]


_NEEDED_BY_EVERY_MODEL = ("transformers.modeling_utils", "transformers.generation", "torch._dynamo")


def _import_everything() -> dict[str, Any]:
    """Import what every job needs, so that children share it; return the machine's facts."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    import probe_machine  # noqa: PLC0415  torch and transformers come in here, once

    torch.set_num_threads(1)
    for name in ("AutoConfig", "AutoTokenizer", "AutoModel", "AutoModelForCausalLM"):
        getattr(transformers, name)
    for name in _NEEDED_BY_EVERY_MODEL:
        importlib.import_module(name)
    import probe_build  # noqa: F401, PLC0415
    import probe_capsule  # noqa: F401, PLC0415
    import probe_cell  # noqa: F401, PLC0415
    import probe_crossing  # noqa: F401, PLC0415
    import probe_graft  # noqa: F401, PLC0415
    import probe_ladder  # noqa: F401, PLC0415
    import probe_trace_job  # noqa: F401, PLC0415

    return probe_machine.facts()


def main(arguments: list[str]) -> None:
    """Serve, or run the one job whose file is named."""
    if arguments[:1] == ["--one"]:
        perform(json.loads(Path(arguments[1]).read_text("utf-8")))
        return
    answer({"ready": _import_everything()})
    if hasattr(os, "fork"):
        serve()
        return
    for line in sys.stdin:
        answer(spawn(json.loads(line)))


if __name__ == "__main__":
    main(sys.argv[1:])
