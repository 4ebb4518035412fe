"""What a model does at commits: each is tried in an environment of a release, in which the commit's code runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from samebits.bisect.subject import Subject
from samebits.bisect.suspects import Ran
from samebits.compare.phases import exception_key
from samebits.diagnose import verdict
from samebits.jobs.cells import NOT_STARTED
from samebits.matrix.plan import Selection
from samebits.matrix.spec import Matrix, StackSpec
from samebits.pipeline.opening import opened
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix
from samebits.pipeline.scheduler import Scheduler
from samebits.records.capture import Capture
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId, Verdict
from samebits.records.report import Report
from samebits.terminal.progress import Progress

_VERSION = re.compile(r"\b\d+(?:\.\d+)+\S*")
"""Version numbers, which differ in the texts of commits with the same fault."""


def fault_of(result: CellResult) -> str:
    """Return what is wrong with a cell, in a text that is equal where the same is."""
    failure = result.failure
    text = result.headline if failure is None else " ".join(exception_key(failure))
    return f"{result.judged}: {_VERSION.sub('', text)}"


class Tried(NamedTuple):
    """How one commit, or one release, was tried."""

    state: str | None
    """None if it says nothing of the code: it does not start, or the machine was in the way."""
    reason: str = ""
    """What it does instead of computing."""
    fails: bool = False


class Trials:
    """Tries commits, and remembers what they do."""

    def __init__(
        self,
        matrix: Matrix,
        subject: Subject,
        order: Order,
        environ: Mapping[str, str],
        progress: Callable[[int], Progress],
    ) -> None:
        self._matrix, self._subject, self._order = matrix, subject, order
        self._environ, self._progress = environ, progress
        self.tried: dict[str, Tried] = {}
        self.ran: dict[str, Ran] = {}
        """What ran of the package at a commit."""
        self.environments: dict[str, str] = {}
        """Commit -> the packages of the environment in which it ran."""
        self._elsewhere: set[str] = set()
        """Commits that run in the environment of the release that they descend from, and not in the others'."""
        self._examples: list[tuple[tuple[Capture, ...], ...]] = []
        """The captures of the first commit in each state."""

    async def run(self, first: str, others: Sequence[str]) -> None:
        """Try commits, or releases, beside the first one, whose environment makes the inputs."""
        names = list(dict.fromkeys((first, *others)))
        await self._run(names)
        again = [name for name in names if name in self._elsewhere and name not in self.tried]
        if again:
            await self._run(list(dict.fromkeys((first, *again))))

    async def _run(self, names: Sequence[str]) -> None:
        matrix = self._with(names, reference=names[0])
        order = self._order.model_copy(update={"selection": self._only(names)})
        async with opened(order, self._environ, self._progress, matrix=matrix) as scheduler:
            runs = await scheduler.observe()
            for name in names:
                spec = self._spec(name)
                if spec.id in scheduler.stacks.failures and spec.base is not None:
                    self._elsewhere.add(
                        name
                    )  # the environment that the others have lacks something
                elif name not in self.tried:
                    self.tried[name] = self._judged(self._spec(name).id, scheduler, runs)
                    self._remember(name, scheduler, runs)
            scheduler.finished = True

    async def explained(self, first: str, before: str, after: str) -> Report:
        """Return the report of a commit and the one before it, with the cause."""
        names = list(
            dict.fromkeys((first, before, after))
        )  # the first one makes checkpoints of recipes
        matrix = self._with(names, reference=before)
        selection = self._only((before, after))
        order = self._order.model_copy(update={"causes": True, "selection": selection})
        report, _ = await run_matrix(order, self._environ, self._progress, matrix=matrix)
        return report

    def _spec(self, name: str) -> StackSpec:
        return self._subject.spec(name, name in self._elsewhere)

    def _with(self, names: Sequence[str], reference: str) -> Matrix:
        specs = tuple(map(self._spec, names))
        stacks = (*specs, *self._makers({spec.id for spec in specs}))
        update = {"stacks": stacks, "reference": self._spec(reference).id, "expected": ()}
        return self._matrix.model_copy(update=update)

    def _makers(self, ids: set[str]) -> Iterator[StackSpec]:
        """Yield the user's environments that make checkpoints, of those that do not run."""
        recipes = (model.build for model in self._matrix.models)
        named = [recipe.stack for recipe in recipes if recipe is not None and recipe.stack]
        for spec in self._matrix.stacks:
            if spec.id not in ids and any(fnmatchcase(spec.id, pattern) for pattern in named):
                yield spec

    def _only(self, names: Sequence[str]) -> Selection:
        return Selection(environments=tuple(self._spec(name).id for name in names))

    def _judged(
        self, stack: str, scheduler: Scheduler, runs: Mapping[CellId, tuple[Capture, ...]]
    ) -> Tried:
        """Return the state of one stack over all rows: a letter for each set of bits."""
        cells = [
            cell for row in scheduler.scope.plan.rows for cell in row.cells if cell.stack == stack
        ]
        faults, kinds, captures = [], [], []
        for cell in cells:
            of_cell = runs[cell]
            failure = of_cell[0].failure
            if failure is not None and failure.type == NOT_STARTED:
                return Tried(None, failure.message)
            alone = verdict.result(cell, of_cell, of_cell, scheduler.scope.store)
            if alone.judged is Verdict.NOT_FINISHED:
                return Tried(None, alone.headline)
            is_sound = alone.judged is Verdict.REFERENCE
            faults.append("" if is_sound else f"{alone.judged}: {alone.headline}")
            kinds.append("" if is_sound else fault_of(alone))
            captures.append(of_cell if is_sound or alone.rest is Verdict.REFERENCE else ())
        reason = next(filter(None, faults), "")
        state = f"{self._number(captures, scheduler)}{'|'.join(kinds)}"
        return Tried(state, reason, fails=bool(reason))

    def _number(self, captures: list[tuple[Capture, ...]], scheduler: Scheduler) -> int:
        """Return the number of the first commit that computes the same bits in every row."""
        for number, example in enumerate(self._examples):
            if all(
                self._same(c, example_capture, scheduler)
                for c, example_capture in zip(captures, example, strict=True)
            ):
                return number
        self._examples.append(tuple(captures))
        return len(self._examples) - 1

    def _same(
        self, runs: tuple[Capture, ...], example: tuple[Capture, ...], scheduler: Scheduler
    ) -> bool:
        if not runs or not example:
            return not runs and not example
        if runs[0].cell == example[0].cell:
            return True
        result = verdict.result(runs[0].cell, runs, example, scheduler.scope.store)
        return (result.rest or result.judged) is Verdict.IDENTICAL

    def _remember(
        self, name: str, scheduler: Scheduler, runs: Mapping[CellId, tuple[Capture, ...]]
    ) -> None:
        id = self._spec(name).id
        stack = scheduler.stacks.built.get(id)
        if stack is None:
            return
        entered: dict[str, set[int]] = {}
        for cell, of_cell in runs.items():
            for file, lines in of_cell[0].entered.items() if cell.stack == id else ():
                entered.setdefault(file, set()).update(lines)
        self.ran[name] = self._subject.ran(stack, entered)
        shown = ("transformers", "torch", "tokenizers", "huggingface-hub", "safetensors")
        self.environments[name] = ", ".join(
            f"{p} {stack.packages[p]}" for p in shown if p in stack.packages
        )
