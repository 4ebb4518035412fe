"""Runs the cells of one stack: imports torch and transformers once, then forks a child per job.

Expects one JSON object a line on standard input: ``{"id": …, "kind": "cell" | "build" | "save" |
"load", "log": path, "timeout": seconds, …}``. Answers on standard output, one JSON object a line:
first ``{"ready": machine facts}``, then ``{"id": …, "exit": code or null, "signal": number or
null, "timed_out": bool, "seconds": …, "cpu": …, "own_cpu": …, "said": …, "phase": …, "step": …,
"stalled": …, "meanwhile": …}`` as each job ends, and every ten seconds, while there are jobs, ``{"running": [{"id": …,
"phase": …, "what": …, "step": …, "of": …, "quiet": seconds}]}``: a process of which nothing is heard
hangs itself. End of input ends the process and its children. What a job computes lies in the files
that the job names, never in the answer.

A job may take as long as it makes progress (process.progress): ``timeout`` is for how long it may make
none.

A child is a session of its own, what it prints goes to ``log``, of which the end is kept, and
everything that it started ends with it; a segfault, a hang or a monkey-patch in it touches nothing
else. What it says of its own end comes back as ``"said"``. ``--one job.json`` runs one job in this
process, which is how jobs run where there is no fork.

transformers imports most of itself, and torch's compiler, only when a model is loaded: seconds
that every child would pay again. A child therefore leaves the names of the modules that it
imported, and the parent imports them before it forks the next one.

Python's collector visits all objects that were imported, a million, and to visit one is to write to
its page, which the kernel then copies: a third of a second whenever it happens in a child. The
parent, which makes hardly any garbage, has it off, and a child is spared what its parent had.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from samebits_probe.process import children as process_children
from samebits_probe.process import network
from samebits_probe.process import progress as process_progress

if TYPE_CHECKING:
    from collections.abc import Iterable

Job = dict[str, Any]

LOG_LIMIT = 1 << 20
"""Bytes of a log; of what is longer the end is kept."""
LOG_KEPT = 1 << 18
SAID_LIMIT = 4096
"""Bytes of what a child says of its own end."""
_TICK = 0.5
"""Seconds between two looks at children: at how far they are, and whether they are there."""
_IMPORTS = 900.0
"""Seconds beyond a job's limit in which an interpreter of its own may import what the job needs."""
_HEARTBEAT = 10.0
"""Seconds between two lines that say what is running."""


KINDS = {
    "build": "samebits_probe.model.build",
    "capsule": "samebits_probe.jobs.capsule",
    "cell": "samebits_probe.cell.cell",
    "graft": "samebits_probe.graft.graft",
    "inputs": "samebits_probe.jobs.inputs",
    "ladder": "samebits_probe.jobs.ladder",
    "load": "samebits_probe.jobs.crossing",
    "save": "samebits_probe.jobs.crossing",
    "trace": "samebits_probe.trace.job",
}
"""The module of each kind of job; its ``run(job)`` does one. They import torch, so they come late."""


def perform(job: Job) -> None:
    """Do one job in this process."""
    importlib.import_module(KINDS[job["kind"]]).run(job)


class Child:
    """A job on its way: its process, what comes from it, and how far it is."""

    def __init__(
        self, job: Job, pid: int, end: int, output: int, log: Log, board: process_progress.Board
    ) -> None:
        self.job = job
        self.pid = pid
        self.started = time.monotonic()
        self.pipes = {end, output}
        """Descriptors that it, or what it started, still holds open."""
        self._end = end
        self._output = output
        self._log = log
        self._said = b""
        self._status: int | None = None
        self._cpu = 0.0
        self._watcher = process_progress.Watcher(board, 0)

    def read(self, pipe: int) -> bool:
        """Take what one of its pipes holds now; False if that is nothing."""
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            self.pipes.discard(pipe)
        elif pipe == self._output:
            self._log.write(chunk)
        else:
            self._said = (self._said + chunk)[:SAID_LIMIT]
        return bool(chunk)

    def has_ended(self) -> bool:
        """Return True if the process itself is gone, whoever holds its pipes."""
        if self._status is None:
            self._wait(os.WNOHANG)
        return self._status is not None

    def _wait(self, options: int) -> None:
        """Take its status, and the CPU seconds of it and of all that it waited for itself."""
        pid, status, used = os.wait4(self.pid, options)
        if pid:
            self._status, self._cpu = status, used.ru_utime + used.ru_stime

    def is_overdue(self) -> bool:
        """Return True if it made no progress for longer than it may."""
        return self._watcher.is_overdue()

    def progress(self) -> dict[str, Any]:
        """Return how far it is."""
        step = self._watcher.look()
        return {
            "id": self.job["id"],
            "phase": step.phase,
            "what": step.what,
            "step": step.step,
            "of": step.of,
            "quiet": round(self._watcher.quiet, 1),
        }

    def finish(self, others: Iterable[int], *, timed_out: bool) -> dict[str, Any]:
        """End it and all that it started, and return the answer for its job."""
        stalled = self._watcher.stalled() if timed_out else ""
        meanwhile = self._watcher.meanwhile() if timed_out else ""
        _kill_group(self.pid)
        if self._status is None:
            self._wait(0)
        process_children.end_orphans({self.pid, *others})
        self._close()
        shutil.rmtree(_modules_folder(self.pid), ignore_errors=True)
        status, step = self._status, self._watcher.look()
        self._watcher.board.close()
        assert status is not None
        return {
            "id": self.job["id"],
            "exit": os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "timed_out": timed_out,
            "seconds": round(time.monotonic() - self.started, 4),
            "cpu": round(self._cpu, 4),
            "own_cpu": round(time.process_time(), 4),
            "said": self._said.decode("utf-8", "replace"),
            "phase": step.phase,
            "step": step.place,
            "stalled": stalled,
            "meanwhile": meanwhile,
        }

    def _close(self) -> None:
        """Take what the pipes still hold, which is no more than a pipe can."""
        for pipe in list(self.pipes):
            left = 64
            while left and self.read(pipe):
                left -= 1
        for pipe in (self._end, self._output):
            os.close(pipe)
        self._log.close()


class Log:
    """A file that holds the end of what was written to it; a full disk is not its reader's fault."""

    def __init__(self, path: str) -> None:
        self._size = 0
        self._file: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = Path(path).open("w+b", buffering=0)  # noqa: SIM115  close() does

    def write(self, chunk: bytes) -> None:
        """Append; where that would be too much, only the end stays."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            if self._size + len(chunk) > LOG_LIMIT:
                self._shorten(self._file)
            self._size += self._file.write(chunk)

    def _shorten(self, file: IO[bytes]) -> None:
        file.seek(max(0, self._size - LOG_KEPT))
        end = file.read()
        file.seek(0)
        file.truncate()
        self._size = file.write(b"[samebits left out what was here]\n" + end)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def fork(job: Job, inherited: Iterable[int] = ()) -> Child:
    """Start ``job`` in a child process; ``inherited`` are descriptors that it is not to have."""
    end, said = os.pipe()
    output, printed = os.pipe()
    log = Log(job["log"])  # and its folder, which the job may expect to be there
    board = process_progress.Board(float(job["timeout"]))
    parent = os.getpid()
    sys.stdout.flush()
    gc.freeze()
    try:
        pid = os.fork()
    except OSError:
        for pipe in (end, said, output, printed):
            os.close(pipe)
        log.close()
        board.close()
        raise
    if pid:
        for pipe in (said, printed):
            os.close(pipe)
        for pipe in (end, output):
            os.set_blocking(pipe, False)
        return Child(job, pid, end, output, log, board)
    code = 1
    try:
        gc.enable()
        process_progress.use(board)
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for pipe in (end, output, *inherited):
            os.close(pipe)
        log.close()
        _redirect(printed)
        process_children.end_with(parent)
        process_children.inherit_orphans()
        process_children.be_the_first_to_go()
        _do(job)
        code = 0
    except BaseException as error:  # noqa: BLE001  the child ends here, whatever happened
        with contextlib.suppress(Exception):
            traceback.print_exc()
        os.write(said, _last_words(error))
    finally:
        with contextlib.suppress(Exception):  # a model may have closed or replaced them
            sys.stdout.flush()
            sys.stderr.flush()
        # no exit handlers: they belong to the parent
        os._exit(code)


def _do(job: Job) -> None:
    if not network.needed(job):
        network.refuse()
    _own_modules()
    last = next(reversed(sys.modules))
    perform(job)
    _leave_imports(last, _imports_file(job))


def _last_words(error: BaseException) -> bytes:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.encode("utf-8", "replace")[:SAID_LIMIT]


def _own_modules() -> None:
    """Copy the code of models to a folder of this process alone.

    Up to 5.2 a local model's code lies under the last part of its path, so that two checkpoints
    named alike, in two processes at once, may import each other's.
    """
    dynamic = sys.modules.get("transformers.dynamic_module_utils")
    if dynamic is not None:
        dynamic.HF_MODULES_CACHE = str(_modules_folder(os.getpid()))  # type: ignore[attr-defined]


def _modules_folder(pid: int) -> Path:
    return Path(os.environ["HF_MODULES_CACHE"]) / str(pid)


_NEVER_LEARNED = ("transformers_modules", "samebits_probe", "__")
"""Code of a model stays in the process of its cell."""


def _imports_file(job: Job) -> Path:
    return Path(job["log"]).with_suffix(".imports")


def _leave_imports(last: str, path: Path) -> None:
    """Write the modules that this child imported, behind ``last``, from packages of its parent."""
    # it saves time and no more; a thread of the model may be importing
    with contextlib.suppress(OSError, RuntimeError, KeyError):
        path.write_text("\n".join(_learnable(last)), "utf-8")


def _learnable(last: str) -> list[str]:
    # from the end: to go by every name writes to its count of references, and the kernel copies
    # the page that it lies on for this process, thousands of them
    imported = list(itertools.takewhile(lambda name: name != last, reversed(sys.modules)))[::-1]
    new = set(imported)
    return [
        name
        for name in imported
        if (package := name.partition(".")[0]) in sys.modules
        and package not in new
        and not name.startswith(_NEVER_LEARNED)
        and getattr(sys.modules[name], "__spec__", None) is not None
    ]


def learn_imports(path: Path) -> None:
    """Import what a child imported, so that the next one finds it there."""
    try:
        names = path.read_text("utf-8").splitlines()
        path.unlink()
    except (OSError, ValueError):
        return
    for name in names:
        # what cannot be imported ahead is imported when it is needed, or not at all
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)


def _redirect(printed: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.close(printed)
    # what is printed before a crash is what explains it
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nothing of the group is left, or nothing that is ours


def spawn(job: Job) -> dict[str, Any]:
    """Run ``job`` in a new interpreter and wait for it: the way without fork."""
    path = Path(job["log"]).with_suffix(".job.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(job), "utf-8")
    where = path.with_suffix(".progress")
    board = process_progress.Board.at(where, float(job["timeout"]))
    board.write(board.read()._replace(allowance=_IMPORTS))
    watcher = process_progress.Watcher(board, 0)
    started, stalled = time.monotonic(), ""
    command = [sys.executable, __file__, "--one", str(path), str(where)]
    with (
        Path(job["log"]).open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as one,
    ):
        while one.poll() is None and not stalled:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(_TICK)
            stalled = watcher.stalled() if watcher.is_overdue() else ""
        if stalled:
            one.kill()
    step = watcher.look()
    board.close()
    where.unlink(missing_ok=True)
    return {
        "id": job["id"],
        "exit": None if stalled else one.returncode,
        "signal": None,
        "timed_out": bool(stalled),
        "seconds": round(time.monotonic() - started, 4),
        "phase": step.phase,
        "step": step.place,
        "stalled": stalled,
    }


def answer(answers: IO[str], message: dict[str, Any]) -> None:
    """Write one line to the host."""
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def serve(answers: IO[str]) -> None:
    """Take jobs and answer them until standard input ends."""
    children: list[Child] = []
    lines, told = _Lines(sys.stdin.fileno()), time.monotonic()
    try:
        while not lines.ended:
            pipes = [pipe for child in children for pipe in child.pipes]
            ready, _, _ = select.select([lines.descriptor, *pipes], [], [], _patience(children))
            for child in children:
                for pipe in child.pipes & set(ready):
                    child.read(pipe)
            if lines.descriptor in ready:
                for line in lines.read():
                    _begin(json.loads(line), children, answers)
            for child in [child for child in children if child.has_ended()]:
                _finish(child, children, answers, timed_out=False)
                learn_imports(_imports_file(child.job))
            for child in [child for child in children if child.is_overdue()]:
                _finish(child, children, answers, timed_out=True)
            if children and time.monotonic() - told >= _HEARTBEAT:
                answer(answers, {"running": [child.progress() for child in children]})
                told = time.monotonic()
    except BrokenPipeError:
        return  # the host is gone, and its end of standard input will say so, too
    finally:
        for child in list(children):
            children.remove(child)
            child.finish([other.pid for other in children], timed_out=True)


def _begin(job: Job, children: list[Child], answers: IO[str]) -> None:
    pipes = [pipe for child in children for pipe in child.pipes]
    try:
        children.append(fork(job, [answers.fileno(), *pipes]))
    except OSError as error:
        said = f"no process could be made for it: {error}"
        answer(answers, {"id": job["id"], "exit": 1, "said": said})


def _finish(child: Child, children: list[Child], answers: IO[str], *, timed_out: bool) -> None:
    children.remove(child)
    answer(answers, child.finish([other.pid for other in children], timed_out=timed_out))


def _patience(children: list[Child]) -> float | None:
    """Return how long nothing need be looked at if nothing is said."""
    if not children:
        return None
    # a child that closed its pipes ends any moment, or is a daemon to be
    return _TICK if all(len(child.pipes) == 2 for child in children) else 0.005


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


_FORKS = "samebits_probe.model.forks"
_MACHINE = "samebits_probe.process.machine"
_NEEDED_BY_EVERY_MODEL = ("transformers.modeling_utils", "transformers.generation", "torch._dynamo")


def _import_everything() -> dict[str, Any]:
    """Import what every job needs, so that children share it; return the machine's facts."""
    torch, transformers = (importlib.import_module(name) for name in ("torch", "transformers"))
    torch.set_num_threads(1)
    for name in ("AutoConfig", "AutoTokenizer", "AutoModel", "AutoModelForCausalLM"):
        getattr(transformers, name)
    for name in (*_NEEDED_BY_EVERY_MODEL, *KINDS.values()):
        importlib.import_module(name)
    forks, machine = (importlib.import_module(name) for name in (_FORKS, _MACHINE))
    forks.prepare()
    facts: dict[str, Any] = machine.facts()
    return facts


def _without_prints() -> IO[str]:
    """Return standard output for the answers alone: what packages print goes to the log."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main(arguments: list[str]) -> None:
    """Serve, or run the one job whose file is named."""
    if arguments[:1] == ["--one"]:
        job = json.loads(Path(arguments[1]).read_text("utf-8"))
        if arguments[2:]:
            process_progress.use(process_progress.Board.at(Path(arguments[2])))
        if not network.needed(job):
            network.refuse()
        perform(job)
        return
    answers = _without_prints()
    gc.disable()
    answer(answers, {"ready": _import_everything()})
    if hasattr(os, "fork"):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of serve's end
        process_children.inherit_orphans()
        serve(answers)
        return
    for line in sys.stdin:
        answer(answers, spawn(json.loads(line)))


if __name__ == "__main__":
    main(sys.argv[1:])
