"""Stack processes that are none: they answer at once, or as a test tells them to."""

import asyncio
import inspect
import json
from pathlib import Path

from samebits.base.hashes import hash_of_text
from samebits.questions.crossings.records import SAVE
from samebits_wire.seal import sealed

READY = {"ready": {"platform": "Linux", "cpu": "fake"}}


def leave(path, record):
    """Write a record with its seal, as a job does."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(sealed(record.model_dump_json()), "utf-8")


def ended(job, **changed):
    return {"id": job["id"], "exit": 0, "seconds": 0.5} | changed


def choose_inputs(job, **changed):
    """Do what jobs.inputs does for a model of token ids."""
    ids = {"hash": "1" * 64, "dtype": "int64", "shape": [1, 6]}
    record = {"model": job["name"], "stack": job["stack"], "model_class": "LlamaForCausalLM"}
    record["prompts"] = {name: {"tensors": {"input_ids": ids}} for name in job["model"]["prompts"]}
    path = Path(job["result"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sealed(json.dumps(record | changed)))
    return ended(job)


def stack_of(job):
    return job["cell"]["stack"] if "cell" in job else job["stack"]


class FakeProcess:
    """A stack process that hands every job to ``does`` and says the answer that it returns.

    ``does`` is a function of the job, async or not; it returns an answer, None for silence, or
    an exception to die of. Everything that was said is in order.
    """

    def __init__(self, does=ended, ready=READY, code=1, log="last words"):
        self.does = does
        self.code, self.log = code, log
        self.jobs = []
        self.running = self.most_running = 0
        self.has_ended = False
        self._lines = asyncio.Queue()
        self._tasks = set()
        if ready is not None:
            self.say(ready)
        else:
            self.die()

    def say(self, message):
        text = message if isinstance(message, str) else json.dumps(message)
        self._lines.put_nowait(f"{text}\n")

    def die(self):
        self._lines.put_nowait("")

    async def write(self, line):
        if self.has_ended:
            raise BrokenPipeError(32, "Broken pipe")
        job = json.loads(line)
        self.jobs.append(job)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        task = asyncio.create_task(self._do(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, job):
        answer = self.does(job)
        if inspect.isawaitable(answer):
            answer = await answer
        self.running -= 1
        if isinstance(answer, Exception):
            self.has_ended = True
            self.die()
        elif answer is not None:
            self.say(answer)

    async def read(self):
        return await self._lines.get()

    async def end(self):
        self.has_ended = True
        self.die()

    def log_tail(self):
        return self.log

    def exit_code(self):
        return self.code

    def activity(self):
        return None


class FakeStarter:
    """Starts the given processes in turn, then ordinary ones; remembers how they were started."""

    def __init__(self, *processes):
        self.processes = []
        self.started = []
        self._next = list(processes)

    async def __call__(self, python, environment, log):
        self.started.append((python, dict(environment), log))
        made = self._next.pop(0)() if self._next else FakeProcess()
        if isinstance(made, Exception):
            raise made
        self.processes.append(made)
        return made


class Crossed:
    """What the jobs of crossings leave, as one test tells it; remembers the jobs."""

    def __init__(self, saves=None, loads=None, crashes=(), makes=None, parts=None):
        self.saves = saves or {}
        self.parts = parts or {}
        self.loads = loads or {}
        self.makes = makes or {}
        self.crashes = set(crashes)
        self.jobs = []

    def __call__(self, job):
        self.jobs.append(job)
        if job["kind"] == "inputs":
            return choose_inputs(job)
        return self.save(job) if job["kind"] == SAVE.name else self.load(job)

    def save(self, job):
        of_made = {} if job["model"]["source"] != "/c" else self.saves
        answers = self.makes if job["makes"] else of_made
        answer = answers.get(job["cell"]["stack"], {"outcome": "saved"})
        if answer is None:
            return ended(job, exit=None, signal=9)
        folder = Path(job["out"])
        assert not folder.exists()
        folder.mkdir(parents=True)
        head = {"cell": job["cell"]}
        if "files" in answer:  # by their content
            for name, text in answer["files"].items():
                (folder / name).write_text(text)
            hashes = {n: hash_of_text(t) for n, t in answer["files"].items()}
            answer = answer | {"files": hashes}
        (folder / "saved.json").write_text(sealed(json.dumps(head | answer)))
        return ended(job)

    def load(self, job):
        loader = job["cell"]["stack"]
        if (loader, "original") in self.crashes and job["models"]:
            return ended(job, exit=None, signal=11)
        crossings = []
        for folder in job["copies"].values():
            assert (Path(folder) / "saved.json").exists()
        for saver in job["models"]:
            if (loader, saver) in self.crashes:
                break
            answer = self.loads.get((saver, loader), {"outcome": "same bits"})
            crossings.append({"saver": saver, "loader": loader} | answer)
        head = {"cell": job["cell"]}
        Path(job["result"]).parent.mkdir(parents=True, exist_ok=True)
        is_whole = len(crossings) == len(job["models"]) and (loader, "parts") not in self.crashes
        head |= {"crossings": crossings} | (
            {"parts": self.parts.get(loader, [])} if is_whole else {}
        )
        Path(job["result"]).write_text(sealed(json.dumps(head)))
        return ended(job) if is_whole else ended(job, exit=None, signal=11)

    def did(self):
        """Return the kinds of its jobs, without the question's name, and their stacks."""
        return sorted((job["kind"].rpartition(".")[2], stack_of(job)) for job in self.jobs)
