"""How are cells run: one process per stack that imports once, and forks a child per job.

The processes run probes/stack.py and are told their jobs line by line. Slots keep as
many children (and imports) busy as there are cores; a cell has one thread, so that its bits
do not depend on what runs beside it.

A job has no limit on its time. The stack's process ends one that makes no progress, and says every
ten seconds what runs; a stack's process of which nothing is heard is ended itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pydantic import ValidationError

from samebits.base.redaction import without_folders
from samebits.records.ids import CellId
from samebits.records.record import Record
from samebits.stacks import probes
from samebits.stacks.costs import Spending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_SILENCE = 120.0
"""Seconds without a word after which a stack process that has jobs is held to hang. It says something
every ten; but it also imports what its children did, which takes long from a cold disk."""
_LISTEN = 5.0
"""Seconds between two looks at how long a stack process has said nothing."""
_LAST_WORDS = 5.0
"""Seconds that a stack process has for ending its children and itself."""
_SLOWEST_START = 900.0
"""Seconds after which a process that still imports is held to hang; a cold disk takes minutes."""
_SILENT = "the stack's process stopped answering"
_LINE_LIMIT = 1 << 24
"""Longest answer line in bytes; the machine facts list every installed package."""


class Ended(Record):
    """How a job ended, seen from outside; what it computed lies in its files."""

    exit: int | None = None
    signal: int | None = None
    timed_out: bool = False
    """True if it was ended because it made no progress."""
    seconds: float = 0.0
    cpu: float = 0.0
    """CPU seconds of the job's processes."""
    own_cpu: float = 0.0
    """CPU seconds of the stack's process up to then: imports and forks."""
    said: str = ""
    """The exception that ended it, where one did."""
    phase: str = ""
    """What it was at when it ended, such as ``forward short``."""
    step: str = ""
    """How far the phase had come, such as ``31 of 350``; '' if it counts no steps."""
    stalled: str = ""
    """For how long it made no progress, where it was ended for that."""
    lost: str = ""
    """Why there is no answer at all: the stack's process died or never came up."""

    meanwhile: str = ""
    """What the CPU did then: what only is slow is told from what waits."""

    @property
    def reason(self) -> str:
        """Why the job left nothing, and what it was at; '' if it ended as it should."""
        if self.lost or not self.why or self.phase in {"", "start"}:
            return self.why
        return f"{self.why}, in phase {self.phase}" + (f" ({self.step})" if self.step else "")

    @property
    def why(self) -> str:
        """The same without what it was at."""
        if self.lost:
            return self.lost
        if self.timed_out:
            said = "; ".join(filter(None, (self.meanwhile, "raise timeout: if it was at work")))
            return f"{self.stalled or 'no progress'} ({said})"
        if self.signal is not None:
            said = f"killed by signal {self.signal} ({self._signal})"
            return said + (_MEMORY if self._signal == "SIGKILL" else "")
        if self.exit:
            return f"exited with {self.exit}" + (f": {self.said}" if self.said else "")
        return ""

    @property
    def stopped(self) -> bool:
        """True if others ended it: for want of progress, or of memory."""
        return not self.lost and (self.timed_out or self._signal in _SENT)

    @property
    def crashed(self) -> bool:
        """True if it ended by what it did itself."""
        by_itself = self.signal is not None or bool(self.exit)
        return by_itself and not self.lost and not self.stopped

    @property
    def _signal(self) -> str:
        return "" if self.signal is None else _signal_name(self.signal)


_MEMORY = ", most likely because memory ran out (use --jobs 1, or more memory)"
"""The kernel ends so what takes more than there is, and hardly anybody else does."""
_SENT = {"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"}
"""What others send to a process, and not what it does to itself."""


class Running(Record):
    """What a job is at, as its stack's process tells it."""

    id: str
    phase: str
    what: str = ""
    """What the step is about, such as the name of a tensor."""
    step: int = 0
    of: int = 0
    """How many steps the phase has; 0 if it does not count them."""
    quiet: float = 0.0
    """Seconds since the last progress."""


OnStep = Callable[[Mapping[str, Any], Running], None]
"""Gets the phase and step of each running job every ten seconds, and no phase when a job has ended."""


class Process(Protocol):
    """A running stack process, spoken to line by line."""

    async def write(self, line: str) -> None:
        """Send one line."""
        ...

    async def read(self) -> str:
        """Return the next line, '' at the end."""
        ...

    async def end(self) -> None:
        """Close its input, and end it if it does not end by itself."""
        ...

    def log_tail(self) -> str:
        """Return the last lines that it wrote to its log."""
        ...


class Starter(Protocol):
    """Starts the process of a stack; tests pass a fake."""

    async def __call__(self, python: str, environment: Mapping[str, str], log: Path) -> Process:
        """Start the process with its standard error in ``log``."""
        ...


class StackProcess:
    """The process of one stack: started when first needed, jobs matched to their answers.

    A job that is lost because the process died or hung runs once more, in a process of its own:
    the one that brought it down takes no other with it.
    """

    def __init__(
        self,
        stack_id: str,
        python: str,
        environment: Mapping[str, str],
        log: Path,
        slots: asyncio.Semaphore,
        starter: Starter,
        n_slots: int = 1,
    ) -> None:
        self.stack_id = stack_id
        self.n_slots = n_slots
        """Jobs that run at a time, over all stacks: what each may take of the memory."""
        self.on_step: OnStep = lambda _job, _running: None
        self.machine: dict[str, Any] | None = None
        self.spent: dict[str, tuple[int, float]] = {}
        """Kind of job -> number of them and CPU seconds; ``imports`` for the process itself."""
        self.costs: list[Spending] = []
        """Every job that ran, in the order in which they ended."""
        self.n_lost = 0
        """Jobs that ended otherwise than by themselves; another time they may not."""
        self._python = python
        self._environment = environment
        self._log = log
        self._slots = slots
        self._starter = starter
        self._process: Process | None = None
        self._starting = asyncio.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._reader: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._has_spoken = False
        self._failed = ""
        self._closed = False
        self._count = 0

    async def run(
        self, job: Mapping[str, Any], started: Callable[[], None] = lambda: None
    ) -> Ended:
        """Run one job in a child of the stack's process and return how it ended.

        ``started`` is called when a slot is free for it.
        """
        async with self._slots:
            started()
            ended = await self._attempt(job)
            if ended.lost and not self._failed and not self._closed:
                ended = await self._alone(job)
        self._note(job, ended)
        return ended

    def _note(self, job: Mapping[str, Any], ended: Ended) -> None:
        kind = " ".join(str(job[key]) for key in ("kind", "run") if key in job)
        jobs, cpu = self.spent.get(kind, (0, 0.0))
        self.spent[kind] = (jobs + 1, cpu + ended.cpu)
        self.n_lost += bool(ended.reason)
        self.costs.append(Spending(cell_of(job), job.get("kind", ""), ended.seconds, ended.cpu))
        if ended.own_cpu:
            self.spent["imports"] = (1, ended.own_cpu)

    async def facts(self) -> dict[str, Any] | None:
        """Return the machine's facts, of a process that is started for it; None if none comes up."""
        await self._started()
        return self.machine

    async def _alone(self, job: Mapping[str, Any]) -> Ended:
        """Run a job in a process that no other job shares."""
        self._count += 1
        log = self._log.with_name(f"{self._log.stem}-alone{self._count}{self._log.suffix}")
        own = StackProcess(
            self.stack_id,
            self._python,
            self._environment,
            log,
            self._slots,
            self._starter,
            self.n_slots,
        )
        own.on_step = self.on_step
        try:
            return await own._attempt(job)
        finally:
            await own.close()

    async def _attempt(self, job: Mapping[str, Any]) -> Ended:
        process = await self._started()
        if process is None:
            return Ended(lost=self._failed)
        self._count += 1
        identity = f"{self.stack_id}#{self._count}"
        future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = _Waiting(job, future)
        try:
            await process.write(json.dumps({**job, "id": identity, "slots": self.n_slots}))
            return await future
        except OSError as error:
            return Ended(lost=f"the stack's process is gone: {without_folders(str(error))}")
        finally:
            self._waiting.pop(identity, None)
            self.on_step(job, Running(id=identity, phase=""))

    async def close(self) -> None:
        """End the process, and the jobs that wait for it."""
        self._closed = True
        await self._end("the stack's process was ended")

    async def _end(self, reason: str) -> None:
        """End the process; a later job starts it again."""
        process, reader, self._reader = self._process, self._reader, None
        listener, self._listener = self._listener, None
        self._lose(reason)
        for task in (reader, listener):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if process is not None:
            await process.end()

    async def _started(self) -> Process | None:
        async with self._starting:
            if self._process is None and not self._failed:
                await self._start()
            return self._process

    async def _start(self) -> None:
        try:
            process = await self._starter(self._python, self._environment, self._log)
        except OSError as error:
            said = without_folders(str(error))
            self._failed = f"the stack's interpreter could not be started: {said}"
            return
        try:
            async with asyncio.timeout(_SLOWEST_START):
                self.machine = await _facts(process)
        except TimeoutError:
            self._failed = f"the stack still imported its packages after {_SLOWEST_START:.0f} s"
        except asyncio.CancelledError:
            await process.end()
            raise
        if self.machine is None:
            await process.end()
            if not self._failed:
                log = without_folders(process.log_tail())
                self._failed = f"the stack could not import its packages:\n{log}"
            return
        self._process = process
        self._reader = asyncio.create_task(self._read_answers(process))
        self._listener = asyncio.create_task(self._listen(process))

    async def _listen(self, process: Process) -> None:
        """End a process that has jobs and says nothing.

        Looks are counted, and not what a clock says between them: this program may have been busy, or
        the machine asleep, while the process spoke.
        """
        silent = 0
        while self._process is process:
            self._has_spoken = False
            await asyncio.sleep(_LISTEN)
            silent = silent + 1 if self._waiting and not self._has_spoken else 0
            if silent * _LISTEN >= _SILENCE and self._process is process:
                await self._end(_SILENT)

    async def _read_answers(self, process: Process) -> None:
        async for answer in _messages(process):
            self._has_spoken = True
            if isinstance(running := answer.get("running"), list):
                self._tell(running)
            waiting = self._waiting.get(str(answer.pop("id", "")))
            if waiting is not None and not waiting.future.done():
                waiting.future.set_result(_ended(answer))
        self._lose(f"the stack's process died:\n{without_folders(process.log_tail())}")
        await process.end()

    def _tell(self, running: list[Any]) -> None:
        """Hand on what runs; what is none of it harms nothing."""
        for said in running:
            with contextlib.suppress(ValidationError):
                told = Running.model_validate(said)
                if told.id in self._waiting:
                    self.on_step(self._waiting[told.id].job, told)

    def _lose(self, reason: str) -> None:
        self._process = None
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_result(Ended(lost=reason))


class _Waiting(NamedTuple):
    """A job that was sent, and who waits for its end."""

    job: Mapping[str, Any]
    future: asyncio.Future[Ended]


def cell_of(job: Mapping[str, Any]) -> str:
    """Return the cell that a job is of, '' if it is of none."""
    if "cell" in job:
        return str(CellId.model_validate(job["cell"]))
    if "variant_name" in job:  # a save or a load
        return f"{job['name']}/{job['variant_name']}@{job['stack']}"
    return ""


async def _facts(process: Process) -> dict[str, Any] | None:
    """Return the machine's facts, with which a process says that it is ready; None if it ends."""
    async for message in _messages(process):
        if isinstance(ready := message.get("ready"), dict):
            return ready
    return None


async def _messages(process: Process) -> AsyncIterator[dict[str, Any]]:
    """Yield what the process says; a package that prints while it is imported is no part of it."""
    while line := await process.read():
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict):
            yield message


def _ended(answer: dict[str, Any]) -> Ended:
    try:
        ended = Ended.model_validate(answer)
        return ended.model_copy(update={"said": without_folders(ended.said)})
    except ValidationError:
        return Ended(exit=1, said="its stack's process gave an answer that is none")


class _PipedProcess:
    """A real process with pipes."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def read(self) -> str:
        assert self._process.stdout is not None
        while True:
            # one that is longer than any answer is none, and asyncio has thrown it away
            with contextlib.suppress(ValueError):
                return (await self._process.stdout.readline()).decode("utf-8", "replace")

    async def end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _LAST_WORDS)
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                self._process.kill()
            await self._process.wait()

    def log_tail(self) -> str:
        return tail(self._log)


async def start_process(python: str, environment: Mapping[str, str], log: Path) -> Process:
    """Start probes/stack.py with a stack's interpreter."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            python,
            str(probes.STACK),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=dict(environment),
            limit=_LINE_LIMIT,
            # a Ctrl-C reaches the host, which ends its children in order
            start_new_session=sys.platform != "win32",
        )
    return _PipedProcess(process, log)


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log, without this machine's folders; '' if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - (1 << 14)))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return without_folders("\n".join(text.splitlines()[-lines:]))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
