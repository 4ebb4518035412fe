"""The process of a stack, which imports transformers once and forks a child for each job.

The process runs probes/stack.py and reads its jobs line by line. Slots keep as many children (and
imports, for a while) busy as there are cores. A job says how many threads it has, so that its bits do not depend
on the load of the machine; it takes as many slots.

A job has no time limit. The stack's process ends a job that makes no progress, and reports every
ten seconds which jobs run. The host ends a stack's process that reports nothing for too long, or that
does nothing while it starts.

What the machine or a store did is tried once more: a start that a signal, missing memory or a full
disk ended, a job whose process died, a job that a damaged file ended. It is never a failure of the
model.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from samebits.base.errors import OF_THE_MACHINE
from samebits.records.ids import CellId
from samebits.records.record import Record
from samebits.stacks import probes
from samebits.stacks.costs import Spending
from samebits.stacks.slots import Slots
from samebits_wire.atomic import read_whole
from samebits_wire.folders import without_folders

_MAX_SILENCE = 120.0
"""Seconds without a message after which a stack process with jobs is considered hung. It sends one
every ten seconds, but it also imports what its children imported, slowly from a cold disk."""
_CHECK_INTERVAL = 5.0
"""Seconds between two checks for messages of a stack process."""
_TIME_TO_END = 3.0
"""Seconds that a stack process has to end its children and itself."""
_MAX_START = 900.0
"""Seconds after which a process that still imports is considered hung; cold disks take minutes."""
_MAX_IDLE = 60.0
"""Seconds after which a process that imports is considered hung if it used no CPU and read nothing."""
_SLOT_OF_START = 15.0
"""Seconds after which a start gives its slot back; most imports take less, and a hung one all of it."""
_TRIES = 2
"""How often a process is started if the machine ended it, or did not let it start."""
_IMPORTING = "while it imported its packages"
_HUNG = "the environment's process stopped answering"
_STORE_FAULT = "StoreFault: "
"""Name of the exception of probes/samebits_probe/process/files.py."""
_OF_THE_MACHINE = re.compile(
    r"MemoryError|bad_alloc|annot allocate memory|failed to map segment|"
    r"No space left|Disk quota|Read-only file system|Input/output error|File too large|"
    r"Too many open files|Resource temporarily unavailable"
)
"""What the last line of a log says if memory, a disk or the kernel's limits ended a process."""
_NO_ROOM = re.compile(rf"MemoryError\b|{OF_THE_MACHINE.pattern}")
"""The exception that ended a job for want of memory or disk."""
_LINE_LIMIT = 1 << 24
"""Maximum bytes of an answer line; the machine facts list every installed package."""


class Ended(Record):
    """How a job ended. Its results are in its files."""

    exit: int | None = None
    signal: int | None = None
    timed_out: bool = False
    """True if the stack's process ended it because it made no progress."""
    seconds: float = 0.0
    cpu: float = 0.0
    """CPU seconds of the job's processes."""
    own_cpu: float = 0.0
    """CPU seconds of the stack's process so far, for imports and forks."""
    said: str = ""
    """The exception that ended it, if one did."""
    phase: str = ""
    """The phase in which it ended, such as ``forward short``."""
    step: str = ""
    """Progress of the phase, such as ``31 of 350``; '' if it counts no steps."""
    stalled: str = ""
    """Text on how long it made no progress, if it was ended for that."""
    lost: str = ""
    """Why there is no answer: the stack's process died or did not start."""
    machine: bool = False
    """True if it was lost by a fault of the machine."""

    meanwhile: str = ""
    """CPU use during that time, which distinguishes a slow job from a waiting one."""

    @property
    def reason(self) -> str:
        """Why the job has no result, with phase and step; '' if it ended normally."""
        if self.lost or not self.why or self.phase in {"", "start"}:
            return self.why
        return f"{self.why}, in phase {self.phase}" + (f" ({self.step})" if self.step else "")

    @property
    def why(self) -> str:
        """The same without phase and step."""
        if self.lost:
            return self.lost
        if self.is_store_fault:
            detail = self.said.removeprefix(_STORE_FAULT)
            return f"a kept file was damaged or missing, also after it was made again: {detail}"
        if self.timed_out:
            detail = "; ".join(
                filter(
                    None, (self.meanwhile, "if it was still working, raise timeout: in matrix.yaml")
                )
            )
            return f"{self.stalled or 'no progress'} ({detail})"
        if self.signal is not None:
            return _killed_by(self.signal)
        if self.exit:
            return f"exited with {self.exit}" + (f": {self.said}" if self.said else "")
        return ""

    @property
    def stopped(self) -> bool:
        """True if it was ended from outside: for lack of progress or memory, or by another fault."""
        if self.lost:
            return self.machine
        by_machine = bool(self.exit) and bool(_NO_ROOM.match(self.said))
        return (
            self.timed_out or self._signal in _OUTSIDE_SIGNALS or self.is_store_fault or by_machine
        )

    @property
    def is_store_fault(self) -> bool:
        """True if a file that another job left was damaged or missing."""
        return self.said.startswith(_STORE_FAULT)

    @property
    def crashed(self) -> bool:
        """True if it ended by its own signal or exit code."""
        by_itself = self.signal is not None or bool(self.exit)
        return by_itself and not self.lost and not self.stopped

    @property
    def _signal(self) -> str:
        return "" if self.signal is None else _signal_name(self.signal)


_OUT_OF_MEMORY = ", most likely because memory ran out (use --jobs 1, or more memory)"
"""SIGKILL almost always comes from the kernel's out-of-memory killer."""
_OUTSIDE_SIGNALS = {"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"}
"""Signals that come from outside the process."""


class Running(Record):
    """The progress of a job, as reported by its stack's process."""

    id: str
    phase: str
    what: str = ""
    """The subject of the step, such as the name of a tensor."""
    step: int = 0
    of: int = 0
    """Number of steps of the phase; 0 if it does not count them."""
    quiet: float = 0.0
    """Seconds since the last progress."""


Mend = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Makes the kept files again that a job needs."""
OnStep = Callable[[Mapping[str, Any], Running], None]
"""Called with the progress of each running job every ten seconds, and with phase '' at its end."""


class Process(Protocol):
    """A running stack process that exchanges lines with the host."""

    async def write(self, line: str) -> None:
        """Send one line."""
        ...

    async def read(self) -> str:
        """Return the next line; '' at the end of the output."""
        ...

    async def end(self) -> None:
        """Close its input, and kill it if it does not end by itself."""
        ...

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        ...

    def exit_code(self) -> int | None:
        """Return its exit code, negative for a signal; None if it did not end by itself."""
        ...

    def activity(self) -> tuple[int, ...] | None:
        """Return what grows while it works; None if the platform does not tell."""
        ...


class Starter(Protocol):
    """Starts the process of a stack; tests pass a fake."""

    async def __call__(self, python: str, environment: Mapping[str, str], log: Path) -> Process:
        """Start the process with standard error redirected to ``log``."""
        ...


class StackProcess:
    """The process of one stack, which starts with the first job.

    A job that is lost because the process died or hung runs once more in a separate process, so
    that the job that brought the process down cannot take others with it again.
    """

    def __init__(
        self,
        stack_id: str,
        python: str,
        environment: Mapping[str, str],
        log: Path,
        slots: Slots,
        starter: Starter,
    ) -> None:
        self.stack_id = stack_id
        self.on_step: OnStep = lambda _job, _running: None
        self.mend: Mend = mend_nothing
        self.machine: dict[str, Any] | None = None
        self.spent: dict[str, tuple[int, float]] = {}
        """Kind of job -> number of jobs and CPU seconds; ``imports`` for the process itself."""
        self.costs: list[Spending] = []
        """Every job that ran, in the order of their ends."""
        self.n_lost = 0
        """Number of jobs that did not end normally; they may the next time."""
        self._python = python
        self._environment = environment
        self._log = log
        self._slots = slots
        self._starter = starter
        self._process: Process | None = None
        self._starting = asyncio.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._reader: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._got_message = False
        self._failed: Ended | None = None
        """How every job ends, because the process does not start."""
        self._closed = False
        self._count = 0

    async def run(
        self, job: Mapping[str, Any], started: Callable[[], None] = lambda: None
    ) -> Ended:
        """Run one job in a child of the stack's process and return how it ended.

        ``started`` is called when a slot is free for it.
        """
        ended = await self._run(job, started)
        if ended.is_store_fault and not self._closed:
            await self.mend(job)
            ended = await self._run(job, started)
        self._record_cost(job, ended)
        return ended

    async def _run(self, job: Mapping[str, Any], started: Callable[[], None]) -> Ended:
        ended = await self._run_here(job, started)
        if ended.lost and self._failed is None and not self._closed:
            return await self._run_separately(job)
        return ended

    async def _run_here(
        self, job: Mapping[str, Any], started: Callable[[], None] = lambda: None
    ) -> Ended:
        """Run a job in this process; while the process starts, the job takes no slot."""
        while (process := await self._started()) is not None:
            async with self._slots.taken(_threads_of(job)):
                if self._process is process:
                    started()
                    return await self._send(process, job)
        assert self._failed is not None
        return self._failed

    def n_beside(self, threads: int) -> int:
        """Return how many jobs of that many threads share the machine's memory."""
        return self._slots.beside(threads)

    def _record_cost(self, job: Mapping[str, Any], ended: Ended) -> None:
        kind = " ".join(str(job[key]) for key in ("kind", "run") if key in job)
        jobs, cpu = self.spent.get(kind, (0, 0.0))
        self.spent[kind] = (jobs + 1, cpu + ended.cpu)
        self.n_lost += bool(ended.reason)
        seconds = ended.seconds * self._slots.share(_threads_of(job))
        self.costs.append(Spending(cell_of(job), job.get("kind", ""), seconds, ended.cpu))
        if ended.own_cpu:
            self.spent["imports"] = (1, ended.own_cpu)

    async def facts(self) -> dict[str, Any] | None:
        """Return the machine's facts, starting the process if needed; None if it does not start."""
        await self._started()
        return self.machine

    async def _run_separately(self, job: Mapping[str, Any]) -> Ended:
        """Run a job in a separate process that no other job shares."""
        self._count += 1
        log = self._log.with_name(f"{self._log.stem}-alone{self._count}{self._log.suffix}")
        separate = StackProcess(
            self.stack_id,
            self._python,
            self._environment,
            log,
            self._slots,
            self._starter,
        )
        separate.on_step = self.on_step
        try:
            return await separate._run_here(job)
        finally:
            await separate.close()

    async def _send(self, process: Process, job: Mapping[str, Any]) -> Ended:
        self._count += 1
        identity = f"{self.stack_id}#{self._count}"
        future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = _Waiting(job, future)
        try:
            added = {"id": identity, "slots": self.n_beside(_threads_of(job))}
            await process.write(json.dumps({**job, **added}))
            return await future
        except OSError as error:
            reason = f"the connection to the environment's process was lost: {without_folders(str(error))}"
            return Ended(lost=reason, machine=True)
        finally:
            self._waiting.pop(identity, None)
            self.on_step(job, Running(id=identity, phase=""))

    async def close(self) -> None:
        """End the process and its waiting jobs."""
        self._closed = True
        await self._end(_ENDED)

    async def _end(self, reason: str) -> None:
        """End the process; the next job starts it again."""
        process, reader, self._reader = self._process, self._reader, None
        watcher, self._watcher = self._watcher, None
        self._fail_waiting(Ended(lost=reason, machine=True))
        for task in (reader, watcher):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if process is not None:
            await process.end()

    async def _started(self) -> Process | None:
        async with self._starting:
            if self._process is None and self._failed is None:
                self._failed = await self._start_in_slot()
            return self._process

    async def _start_in_slot(self) -> Ended | None:
        """Start the process; it has a slot for a while, so that not all stacks import at once."""
        starting = None
        try:
            async with self._slots.taken():
                starting = asyncio.create_task(self._start())
                await asyncio.wait({starting}, timeout=_SLOT_OF_START)
            return await starting
        finally:
            if starting is not None and not starting.done():
                starting.cancel()
                await asyncio.wait({starting})

    async def _start(self) -> Ended | None:
        """Start the process, once more if the machine ended it; return why there is none."""
        failure = await self._try_to_start()
        for _ in range(1, _TRIES):
            if failure is None or not failure.machine:
                return failure
            failure = await self._try_to_start()
        if failure is None:
            return None
        return failure.model_copy(update={"lost": f"{failure.lost} ({_TRIES} tries)"})

    async def _try_to_start(self) -> Ended | None:
        try:
            process = await self._starter(self._python, self._environment, self._log)
        except OSError as error:
            message = without_folders(str(error))
            reason = f"the environment's interpreter could not be started: {message}"
            return Ended(lost=reason, machine=True)
        try:
            self.machine = await _ready_facts(process)
        except TimeoutError as error:
            await process.end()
            return Ended(lost=str(error), machine=True)
        except asyncio.CancelledError:
            await process.end()
            raise
        if self.machine is None:
            await process.end()
            return _gone(process, imported=False)
        self._process = process
        self._reader = asyncio.create_task(self._read_answers(process))
        self._watcher = asyncio.create_task(self._watch(process))
        return None

    async def _watch(self, process: Process) -> None:
        """End a process that has jobs and sends no messages.

        Checks are counted instead of reading a clock: the host may have been busy, or the machine
        asleep, while the process sent messages.
        """
        n_silent = 0
        while self._process is process:
            self._got_message = False
            await asyncio.sleep(_CHECK_INTERVAL)
            n_silent = n_silent + 1 if self._waiting and not self._got_message else 0
            if n_silent * _CHECK_INTERVAL >= _MAX_SILENCE and self._process is process:
                await self._end(_HUNG)

    async def _read_answers(self, process: Process) -> None:
        async for answer in _messages(process):
            self._got_message = True
            if isinstance(running := answer.get("running"), list):
                self._report_progress(running)
            waiting = self._waiting.get(str(answer.pop("id", "")))
            if waiting is not None and not waiting.future.done():
                waiting.future.set_result(_read_end(answer))
        if self._process is process:
            self._process = None
        await process.end()
        self._fail_waiting(_gone(process, imported=True))

    def _report_progress(self, running: list[Any]) -> None:
        """Pass on the progress of running jobs; invalid entries are ignored."""
        for entry in running:
            with contextlib.suppress(ValidationError):
                progress = Running.model_validate(entry)
                if progress.id in self._waiting:
                    self.on_step(self._waiting[progress.id].job, progress)

    def _fail_waiting(self, ended: Ended) -> None:
        self._process = None
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_result(ended)


class _Waiting(NamedTuple):
    """A job that was sent, and the future of its end."""

    job: Mapping[str, Any]
    future: asyncio.Future[Ended]


def _threads_of(job: Mapping[str, Any]) -> int:
    """Return the threads of a job; one for a job that computes nothing to compare."""
    return int(job.get("threads", 1))


def cell_of(job: Mapping[str, Any]) -> str:
    """Return the cell of a job; '' if it has none."""
    return str(CellId.model_validate(job["cell"])) if "cell" in job else ""


_ENDED = "the environment's process was ended"


async def mend_nothing(_job: Mapping[str, Any]) -> None:
    """Make no file again: outside of a run nothing knows how."""


async def _ready_facts(process: Process) -> dict[str, Any] | None:
    """Return the machine's facts from the process's ready message; None if the process ends.

    Raises:
        TimeoutError: it takes too long, or does nothing; the message says so.

    """
    reading = asyncio.create_task(_first_ready(process))
    activity, n_checks, n_idle = process.activity(), 0, 0
    try:
        while not (await asyncio.wait({reading}, timeout=_CHECK_INTERVAL))[0]:
            before, activity = activity, process.activity()
            n_checks += 1
            n_idle = n_idle + 1 if activity is not None and activity == before else 0
            # checks are counted, as the machine may have been asleep
            if n_idle * _CHECK_INTERVAL >= _MAX_IDLE:
                msg = f"the environment's process did nothing for {_MAX_IDLE:.0f} s {_IMPORTING}"
                raise TimeoutError(msg)
            if n_checks * _CHECK_INTERVAL >= _MAX_START:
                msg = f"the environment did not finish importing its packages in {_MAX_START:.0f} s"
                raise TimeoutError(msg)
    finally:
        reading.cancel()
    return reading.result()


async def _first_ready(process: Process) -> dict[str, Any] | None:
    async for message in _messages(process):
        if isinstance(ready := message.get("ready"), dict):
            return ready
    return None


_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)\b.*")
"""The last line of a traceback."""


def _gone(process: Process, *, imported: bool) -> Ended:
    """Return why a process is gone: by a fault of the machine, or of its packages or jobs."""
    code, log = process.exit_code(), without_folders(process.log_tail()).strip()
    if code is not None and code < 0:
        reason = f"the environment's process was {_killed_by(-code)}{'' if imported else f' {_IMPORTING}'}"
        is_machine = not imported or _signal_name(-code) in _OUTSIDE_SIGNALS
        return Ended(lost=reason, machine=is_machine)
    if _OF_THE_MACHINE.search(last := log.rpartition("\n")[2]):
        how = "died" if imported else f"ended {_IMPORTING}"
        return Ended(lost=f"the environment's process {how}: {last}", machine=True)
    # an exception stands in the first line, as some reports quote no more
    why = f": {last}" if _EXCEPTION.fullmatch(last) else ""
    what = (
        "the environment's process died"
        if imported
        else f"the environment could not import its packages{why}"
    )
    return Ended(lost=f"{what}; {_log_or_code(code, log)}")


def _log_or_code(code: int | None, log: str) -> str:
    """Return the end of a log in words; without one, the exit code."""
    if log:
        return f"the end of its log:\n{log}"
    return f"its log is empty, and its exit code is {'unknown' if code is None else code}"


def _killed_by(number: int) -> str:
    name = _signal_name(number)
    return f"killed by signal {number} ({name})" + (_OUT_OF_MEMORY if name == "SIGKILL" else "")


async def _messages(process: Process) -> AsyncIterator[dict[str, Any]]:
    """Yield the messages of the process; lines that packages print on import are skipped."""
    while line := await process.read():
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict):
            yield message


def _read_end(answer: dict[str, Any]) -> Ended:
    try:
        ended = Ended.model_validate(answer)
        return ended.model_copy(update={"said": without_folders(ended.said)})
    except ValidationError:
        return Ended(exit=1, said="the environment's process sent an invalid answer")


class _PipedProcess:
    """A real process with pipes."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._was_killed = False

    async def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def read(self) -> str:
        assert self._process.stdout is not None
        while True:
            # a line over the limit is no answer; asyncio has discarded it
            with contextlib.suppress(ValueError):
                return (await self._process.stdout.readline()).decode("utf-8", "replace")

    async def end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _TIME_TO_END)
        except TimeoutError:
            self._was_killed = True
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has already ended
                self._process.kill()
            await self._process.wait()

    def log_tail(self) -> str:
        return tail(self._log)

    def exit_code(self) -> int | None:
        return None if self._was_killed else self._process.returncode

    def activity(self) -> tuple[int, ...] | None:
        """Return its page faults, CPU ticks and bytes read, from /proc."""
        folder = Path("/proc") / str(self._process.pid)
        try:
            # "pid (name) state ppid …"; a name may contain spaces and brackets
            fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            n_read = (folder / "io").read_text("ascii").split()[1]
            return (*(int(fields[i]) for i in (7, 9, 11, 12)), int(n_read))
        except (OSError, ValueError, IndexError):
            return None


async def start_process(
    python: str, environment: Mapping[str, str], log: Path, words: Sequence[str] = ()
) -> Process:
    """Start a script with a stack's interpreter: probes/stack.py, or what ``words`` name."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            python,
            *(words or (str(probes.STACK),)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=dict(environment),
            limit=_LINE_LIMIT,
            # only the host gets a Ctrl-C, and then ends its children in order
            start_new_session=True,
        )
    return _PipedProcess(process, log)


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log without this machine's folders; '' if there is no log."""
    try:
        text = read_whole(log, end=1 << 14).decode("utf-8", "replace")
    except OSError:
        return ""
    return without_folders("\n".join(text.splitlines()[-lines:]))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
