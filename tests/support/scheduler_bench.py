"""A scheduler of a whole run over fake processes."""

import asyncio
import json
from pathlib import Path

from samebits.base.digests import digest_of
from samebits.base.errors import StackError
from samebits.base.hashes import hash_of_text
from samebits.matrix.plan import Selection, plan
from samebits.matrix.spec import Matrix, Recipe
from samebits.pipeline.order import Order
from samebits.pipeline.scheduler import Scheduler
from samebits.pipeline.scope import Scope
from samebits.records.ids import CellId
from samebits.stacks.build import Stack
from samebits.stacks.packages import Added, ExtendedStack
from samebits.storage.sharing import Sharing
from samebits.storage.store import Store
from samebits_wire.seal import sealed
from tests.support.builders import built_stack, capture, model_spec, stack_spec
from tests.support.fakes import FakeStarter, choose_inputs, ended, leave

STACKS = ("4.48", "4.57", "5.0")


KNOWN = {"4.48": ("llama",), "4.57": ("llama", "gemma3"), "5.0": ("llama", "gemma3", "qwen3")}


def recipe(name="llama", architecture=None, **changed):
    """Return a model with a recipe, whose architecture is by default its name."""
    return model_spec(name, build=Recipe(architecture=architecture or name, **changed))


class RecordedProgress:
    """A Progress that records everything."""

    def __init__(self):
        self.lines = []

    def stack(self, id, state, *, is_busy=True):
        self.lines.append(f"stack {id}: {state}")

    def begin(self, phase, total, what):
        self.lines.append(f"begin {phase} ({total}): {what}")

    def expect(self, estimate):
        self.estimate = estimate

    def advance(self, phase):
        self.advanced = [*getattr(self, "advanced", ()), phase]

    def end(self, phase):
        self.lines.append(f"end {phase}")

    def start(self, cell):
        self.lines.append(f"start {cell}")

    def step(self, job, phase, step, of):
        self.lines.append(f"step {job}: {phase} {step}/{of}")

    def done(self, cell, outcome):
        self.lines.append(f"done {cell}: {outcome}")

    def failure(self, text):
        self.lines.append(f"failure {text}")

    def note(self, text):
        self.lines.append(f"note {text}")

    def close(self):
        self.lines.append("close")

    def of(self, word):
        return [line for line in self.lines if line.startswith(word)]


def extended(stack, python, packages, stays=()):
    """Return a stack with packages, as if they were installed."""
    versions = {
        name: version or "1.0" for name, _, version in (p.partition("==") for p in packages)
    }
    added = Added(lock="\n".join(packages), packages=versions)
    fields = {name: getattr(stack, name) for name in Stack.model_fields}
    fields["packages"] = stack.packages | versions
    fields["lock_digest"] = digest_of([stack.lock_digest, packages])
    return ExtendedStack(**fields, folder=f"/packages/{stack.id}", added=added)


def probe(job):
    """Do what the probes do: write a checkpoint, inputs or a complete capture."""
    if job["kind"] == "build":
        out = Path(job["out"])
        out.mkdir(parents=True)
        text = json.dumps(job["recipe"], sort_keys=True)
        (out / "model.safetensors").write_text(text)
        files = {"model.safetensors": hash_of_text(text)}
        (out / "checkpoint.json").write_text(
            sealed(json.dumps({"n_parameters": 12, "files": files}))
        )
        return ended(job)
    if job["kind"] == "inputs":
        return choose_inputs(job)
    cell = CellId.model_validate(job["cell"])
    written = capture(cell.stack, run=job["run"], model=cell.model).model_copy(
        update={"cell": cell}
    )
    leave(job["capture"], written)
    return ended(job)


class Bench:
    """A scheduler with fake stacks and fake processes."""

    def __init__(
        self,
        root,
        *models,
        does=None,
        failing=(),
        select=None,
        exclude=(),
        slots=4,
        between=(),
        extend=None,
        sharing=None,
        **asked,
    ):
        self.does = does or {}
        self.failing = failing
        self.refusing = {}
        """Stack -> what its builds raise, in turn."""
        self.error = StackError
        self.built = []
        self.progress = RecordedProgress()
        self.starter = FakeStarter()
        matrix = Matrix(
            path=str(root / "matrix.yaml"),
            stacks=tuple(
                stack_spec(id).model_copy(update={"between": id in between}) for id in STACKS
            ),
            reference="4.48",
            models=models or (recipe(),),
            exclude=exclude,
        )
        self.plan = plan(matrix, Selection.parse(**(select or {})))
        self.environ = {"HF_TOKEN": "secret"}
        self.make = lambda **changed: Scheduler(
            Scope(
                order=Order(jobs=slots, **asked),
                matrix=matrix,
                **({"plan": self.plan, "whole": self.plan} | changed),
                root=root / "work",
                store=Store(root / "work"),
                progress=self.progress,
                environ=self.environ,
                sharing=sharing(root / "work") if sharing else Sharing(root / "work"),
            ),
            starter=self.start,
            builder=self.build,
            extender=extend or extended,
        )
        self.lab = None

    def build(self, spec):
        self.built.append(spec.id)
        if spec.id in self.refusing:
            error = self.refusing[spec.id].pop(0)
            if error is not None:
                raise error
        if spec.id in self.failing:
            raise self.error(f"stack {spec.id}: no resolution:\nnumpy is too old")
        return built_stack(spec.id, *KNOWN[spec.id], python=f"python{spec.id}")

    async def start(self, python, environment, log):
        process = await self.starter(python, environment, log)
        process.does = self.does.get(python.removeprefix("python"), probe)
        return process

    def run(self, *, again=None):
        async def main():
            self.lab = self.make()
            try:
                runs = await asyncio.wait_for(self.lab.observe(), 10)
                if again is not None:
                    await asyncio.wait_for(self.lab.look_again(again(runs)), 10)
            finally:
                await self.lab.close()
            return runs

        return asyncio.run(main())

    @property
    def jobs(self):
        """Every job, with the python that ran it."""
        pairs = zip(self.starter.started, self.starter.processes, strict=True)
        return [(start[0].removeprefix("python"), job) for start, p in pairs for job in p.jobs]

    def jobs_of(self, kind):
        return [(stack, job) for stack, job in self.jobs if job["kind"] == kind]


def statuses(runs):
    return {
        f"{cell.model}@{cell.stack}": [run.status for run in pair] for cell, pair in runs.items()
    }
