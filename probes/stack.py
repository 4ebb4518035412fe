"""Process of one stack: imports torch and transformers once, then forks a child per job.

It reads one JSON object per line from standard input: ``{"id": …, "kind": "cell" | "build" |
"ladder" | …, "log": path, "timeout": seconds, …}``. It writes one JSON object per line to
standard output: first ``{"ready": machine facts}``, then ``{"id": …, "exit": code or null,
"signal": number or null, "timed_out": bool, "seconds": …, "cpu": …, "own_cpu": …, "said": …,
"phase": …, "step": …, "stalled": …, "meanwhile": …}`` as each job ends. While there are jobs, it
also writes ``{"running": [{"id": …, "phase": …, "what": …, "step": …, "of": …, "quiet":
seconds}]}`` every ten seconds; if these lines stop, the process itself hangs. End of input ends the
process and its children. The results of a job are in the files that the job names, never in these
lines.

A job may take as long as it makes progress (process.progress). ``timeout`` is how long it may make
none.

A child is a session of its own. Its output goes to ``log``, of which the end is kept, and all
processes that it started end with it. A segfault, a hang or a monkey-patch in it does not affect
other jobs. The exception that ended it is returned as ``"said"``.

transformers imports most of its modules, and torch's compiler, only when a model is loaded, which
would take seconds in every child. A child therefore writes down what it learned (process.learned),
and the parent takes it over before the next fork.

Python's garbage collector visits all imported objects, about a million. A visit writes to the
object's memory page, which the kernel then copies: a third of a second per collection in a child.
The parent, which makes hardly any garbage, switches it off, and a child's collector skips the
objects of its parent.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from samebits_probe.process import (
    calls,
    consent,
    device_forks,
    learned,
    marks,
    network,
    own,
    progress,
    vision,
)
from samebits_probe.process.children import (
    be_first_for_oom_killer,
    die_with_parent,
    end_orphans,
    inherit_orphans,
)

if TYPE_CHECKING:
    from samebits_wire.jobs import Job

LOG_LIMIT = 1 << 20
"""Maximum bytes of a log; of a longer one the end is kept."""
LOG_KEPT = 1 << 18
LAST_WORDS_LIMIT = 4096
"""Maximum bytes of the exception that a child reports at its end."""
_TICK = 0.5
"""Seconds between two looks at the children: at their progress, and whether they have ended."""
_HEARTBEAT = 10.0
"""Seconds between two lines that list the running jobs."""


KINDS = {
    "build": "samebits_probe.jobs.build",
    "capsule": "samebits_probe.jobs.capsule",
    "cell": "samebits_probe.cell.cell",
    "golden": "samebits_probe.jobs.golden",
    "graft": "samebits_probe.graft.graft",
    "inputs": "samebits_probe.jobs.inputs",
    "ladder": "samebits_probe.jobs.ladder",
    "trace": "samebits_probe.trace.job",
}
"""Kind of job -> module whose ``run(job)`` does it. Imported late, because they import torch.

A kind of a question, such as ``training.step``, leads to its module by itself."""
_OF_QUESTIONS = "samebits_probe.questions"


def perform(job: Job) -> None:
    """Run one job in this process."""
    vision.make_importable()
    if calls.are_wanted(job):
        calls.CALLS.begin()
    _module_of(job).run(job)


def _module_of(job: Job) -> Any:
    """Import the module that does a job, and return it."""
    kind = job["kind"]
    return importlib.import_module(KINDS.get(kind) or f"{_OF_QUESTIONS}.{kind}")


class Child:
    """A running job: its process, its output and its progress."""

    def __init__(
        self, job: Job, pid: int, last_words_pipe: int, output: int, log: Log, board: progress.Board
    ) -> None:
        self.job = job
        self.pid = pid
        self.started = time.monotonic()
        self.pipes = {last_words_pipe, output}
        """Pipes that the process, or a process that it started, still holds open."""
        self._last_words_pipe = last_words_pipe
        self._output = output
        self._log = log
        self._last_words_bytes = b""
        self._status: int | None = None
        self._cpu = 0.0
        self._watcher = progress.Watcher(board, 0)

    def read(self, pipe: int) -> bool:
        """Read what one of its pipes holds now; return False if that is nothing."""
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            self.pipes.discard(pipe)
        elif pipe == self._output:
            self._log.write(chunk)
        else:
            self._last_words_bytes = (self._last_words_bytes + chunk)[:LAST_WORDS_LIMIT]
        return bool(chunk)

    def has_ended(self) -> bool:
        """Return True if the process has ended, even if its descendants hold its pipes."""
        if self._status is None:
            self._wait(os.WNOHANG)
        return self._status is not None

    def _wait(self, options: int) -> None:
        """Record its status, and the CPU seconds of it and of the children that it waited for."""
        pid, status, usage = os.wait4(self.pid, options)
        if pid:
            self._status, self._cpu = status, usage.ru_utime + usage.ru_stime

    def is_overdue(self) -> bool:
        """Return True if it made no progress for longer than allowed."""
        return self._watcher.is_overdue()

    def progress(self) -> dict[str, Any]:
        """Return its progress as a heartbeat line has it."""
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
        """End it and all processes that it started, and return the answer for its job."""
        stalled = self._watcher.stalled() if timed_out else ""
        meanwhile = self._watcher.meanwhile() if timed_out else ""
        _kill_group(self.pid)
        if self._status is None:
            self._wait(0)
        end_orphans({self.pid, *others})
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
            "said": self._last_words_bytes.decode("utf-8", "replace"),
            "phase": step.phase,
            "step": step.place,
            "stalled": stalled,
            "meanwhile": meanwhile,
        }

    def _close(self) -> None:
        """Read what the pipes still hold, at most the capacity of a pipe, and close them."""
        for pipe in list(self.pipes):
            reads_left = 64
            while reads_left and self.read(pipe):
                reads_left -= 1
        for pipe in (self._last_words_pipe, self._output):
            os.close(pipe)
        self._log.close()


class Log:
    """A file that keeps the end of its content; errors such as a full disk are ignored."""

    def __init__(self, path: str) -> None:
        self._size = 0
        self._file: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = Path(path).open("w+b", buffering=0)  # noqa: SIM115  close() does

    def write(self, chunk: bytes) -> None:
        """Append a chunk; if the file would get too long, keep only its end."""
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
    """Start ``job`` in a child process, which closes the ``inherited`` descriptors."""
    last_words_pipe, last_words_writer = os.pipe()
    output, output_writer = os.pipe()
    log = Log(job["log"])  # also makes the folder, which the job may expect
    board = progress.Board(float(job["timeout"]))
    parent = os.getpid()
    sys.stdout.flush()
    gc.freeze()
    try:
        pid = os.fork()
    except OSError:
        for pipe in (last_words_pipe, last_words_writer, output, output_writer):
            os.close(pipe)
        log.close()
        board.close()
        raise
    if pid:
        for pipe in (last_words_writer, output_writer):
            os.close(pipe)
        for pipe in (last_words_pipe, output):
            os.set_blocking(pipe, False)
        return Child(job, pid, last_words_pipe, output, log, board)
    exit_code = 1
    try:
        gc.enable()
        progress.use(board)
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for pipe in (last_words_pipe, output, *inherited):
            os.close(pipe)
        log.close()
        _redirect(output_writer)
        die_with_parent(parent)
        inherit_orphans()
        be_first_for_oom_killer()
        _run_job(job)
        exit_code = 0
    except BaseException as error:  # noqa: BLE001  the child ends here, whatever happened
        with contextlib.suppress(Exception):
            traceback.print_exc()
        os.write(last_words_writer, _last_words(error))
    finally:
        with contextlib.suppress(Exception):  # a model may have closed or replaced them
            sys.stdout.flush()
            sys.stderr.flush()
        # no exit handlers: they belong to the parent
        os._exit(exit_code)


def _run_job(job: Job) -> None:
    device_forks.count_as_usual()
    if "torch" in sys.modules:
        importlib.import_module(_THREADS).recreate_pool()
    _separate_remote_code()
    _restrict(job)
    mark = learned.mark()
    perform(job)
    learned.write(mark, _learned_file(job))


def _restrict(job: Job) -> None:
    """Take from this process what the job does not need: the network, and code of its model."""
    if not network.needed(job):
        network.refuse()
    if not consent.is_given(job):
        if "transformers" in sys.modules:
            importlib.import_module(_FORKS).refuse_custom_generate()
        consent.guard(job)


def _last_words(error: BaseException) -> bytes:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.encode("utf-8", "replace")[:LAST_WORDS_LIMIT]


def _separate_remote_code() -> None:
    """Set the folder for copies of remote code to one that only this process uses.

    Up to 5.2 a local model's code is copied to a folder named after the last part of its path. Two
    checkpoints with the same name in two processes could then import each other's code.
    """
    if (dynamic := sys.modules.get("transformers.dynamic_module_utils")) is not None:
        dynamic.HF_MODULES_CACHE = str(_modules_folder(os.getpid()))  # type: ignore[attr-defined]


def _modules_folder(pid: int) -> Path:
    return Path(os.environ["HF_MODULES_CACHE"]) / str(pid)


def _learned_file(job: Job) -> Path:
    return Path(job["log"]).with_suffix(".learned")


def _redirect(output_writer: int) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output_writer, 1)
    os.dup2(output_writer, 2)
    os.close(output_writer)
    # output printed before a crash may explain it
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # the group has ended, or belongs to another user


def answer(answers: IO[str], message: dict[str, Any]) -> None:
    """Write one line to the host."""
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def serve(answers: IO[str]) -> None:
    """Run jobs and answer them until standard input ends."""
    children: list[Child] = []
    lines, last_heartbeat = _Lines(sys.stdin.fileno()), time.monotonic()
    try:
        while not lines.ended:
            pipes = [pipe for child in children for pipe in child.pipes]
            ready, _, _ = select.select(
                [lines.descriptor, *pipes], [], [], _select_timeout(children)
            )
            for child in children:
                for pipe in child.pipes & set(ready):
                    child.read(pipe)
            if lines.descriptor in ready:
                for line in lines.read():
                    _start_job(json.loads(line), children, answers)
            for child in [child for child in children if child.has_ended()]:
                _finish_job(child, children, answers, timed_out=False)
                learned.read(_learned_file(child.job))
            for child in [child for child in children if child.is_overdue()]:
                _finish_job(child, children, answers, timed_out=True)
            if children and time.monotonic() - last_heartbeat >= _HEARTBEAT:
                answer(answers, {"running": [child.progress() for child in children]})
                last_heartbeat = time.monotonic()
    except BrokenPipeError:
        return  # the host has ended; standard input is closed, too
    finally:
        for child in list(children):
            children.remove(child)
            child.finish([sibling.pid for sibling in children], timed_out=True)


def _end_input(*_: object) -> None:
    """Make standard input end, so that ``serve`` ends its jobs.

    An exception would end a cleanup that is already going on: when the host is killed, its pipe
    closes before the signal arrives.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _start_job(job: Job, children: list[Child], answers: IO[str]) -> None:
    pipes = [pipe for child in children for pipe in child.pipes]
    try:
        children.append(fork(job, [answers.fileno(), *pipes]))
    except OSError as error:
        message = f"no process could be made for it: {error}"
        answer(answers, {"id": job["id"], "exit": 1, "said": message})


def _finish_job(child: Child, children: list[Child], answers: IO[str], *, timed_out: bool) -> None:
    children.remove(child)
    answer(answers, child.finish([sibling.pid for sibling in children], timed_out=timed_out))


def _select_timeout(children: list[Child]) -> float | None:
    """Return the seconds to wait for input or output before looking at the children again."""
    if not children:
        return None
    # a child that closed its pipes is about to end, or to become a daemon
    return _TICK if all(len(child.pipes) == 2 for child in children) else 0.005


class _Lines:
    """Reads whole lines from a descriptor without blocking on an incomplete one."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.ended = False
        self._incomplete = b""

    def read(self) -> list[bytes]:
        chunk = os.read(self.descriptor, 1 << 16)
        self.ended = not chunk
        *lines, self._incomplete = (self._incomplete + chunk).split(b"\n")
        return [line for line in lines if line.strip()]


_FORKS = "samebits_probe.model.forks"
_MACHINE = "samebits_probe.process.machine"
_SETTINGS = "samebits_probe.process.settings"
_THREADS = "samebits_probe.process.threads"
_NEEDED_BY_EVERY_MODEL = (
    "transformers.modeling_utils",
    "transformers.generation",
    "torch._dynamo",
    "torch.export._trace",  # torch.export imports it at its first call: 0.4 s in each job that asks
)


def _import_everything() -> dict[str, Any]:
    """Import what every job needs, so that children share it, and return the machine's facts."""
    marks.MARKS.install()
    device_forks.count_without_driver()
    importlib.import_module("torch").set_num_threads(1)
    settings = importlib.import_module(_SETTINGS)
    before = settings.read()
    vision.make_importable()
    transformers = importlib.import_module("transformers")
    for module_name in ("AutoConfig", "AutoTokenizer", "AutoModel", "AutoModelForCausalLM"):
        getattr(transformers, module_name)
    for module_name in (*_NEEDED_BY_EVERY_MODEL, *KINDS.values()):
        importlib.import_module(module_name)
    forks, machine = (importlib.import_module(module_name) for module_name in (_FORKS, _MACHINE))
    forks.prepare()
    settings.note_imports(before)
    facts: dict[str, Any] = machine.facts()
    return facts


def _answers_pipe() -> IO[str]:
    """Return standard output for answers only; output printed by packages goes to the log."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main() -> None:
    """Import what jobs need, and serve."""
    own.use_packages()
    # while it imports it would notice the end of its input late
    die_with_parent(os.getppid(), signal.SIGTERM)
    answers = _answers_pipe()
    gc.disable()
    answer(answers, {"ready": _import_everything()})
    signal.signal(signal.SIGTERM, _end_input)
    inherit_orphans()
    serve(answers)


if __name__ == "__main__":
    main()
