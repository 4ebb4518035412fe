"""What samebits says of the calls of a test: each is a model of a matrix, with the test's own inputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from samebits.base.errors import SamebitsError, StackError
from samebits.bisect import command as bisect
from samebits.golden.judge import Asked
from samebits.golden.records import Called, Change
from samebits.matrix import load, yamltext
from samebits.matrix.spec import Matrix, StackSpec
from samebits.matrix.values import is_source
from samebits.pipeline.opening import opened
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.answer import of_cell
from samebits.stacks import source as sources
from samebits.stacks.places import LOCK_AGE
from samebits.terminal.progress import Progress

_SET = "test"
"""Name of the input set with the test's inputs."""
_QUIET = {Verdict.IDENTICAL, Verdict.REFERENCE}


class Step(NamedTuple):
    """One package that changes between two environments."""

    package: Any
    before: StackSpec
    after: StackSpec


class Case(NamedTuple):
    """A call, as both environments made it."""

    first: Called
    last: Called
    outputs: frozenset[str]
    """Names of the outputs from which the test took values; all of them where that is not known."""


class Wish(NamedTuple):
    """How much is asked beside the verdict."""

    releases: bool
    repo: Path | None
    packages: tuple[str, ...]
    trusts_code: bool


def steps(first: StackSpec, last: StackSpec) -> list[Step]:
    """Return the ways from one environment to the other, torch before transformers."""
    between = first.model_copy(update={"torch": last.torch, "id": f"{first.id}-on-{last.torch}"})
    if first.torch == last.torch:
        between = first
    if first.transformers == last.transformers:
        between = last
    torch = [Step("torch", first, between)] if first.torch != last.torch else []
    return [*torch, *([Step("transformers", between, last)] if between != last else [])]


class Asker:
    """Runs the calls of a test in two environments and compares them."""

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        progress: Callable[[int], Progress],
        say: Callable[[str], None],
        wish: Wish,
    ) -> None:
        self._root, self._environ, self._progress, self._say = root, environ, progress, say
        self._wish = wish

    async def ask(self, cases: Mapping[int, Case], way: Sequence[Step]) -> dict[int, Asked]:
        """Return the answers for calls by their numbers."""
        answers = {number: Asked((), (True, True)) for number in cases}
        for step in way:
            matrix = self._matrix([case.first for case in cases.values()], step)
            order = self._order(step)
            report, _ = await run_matrix(order, self._environ, self._progress, matrix=matrix)
            outputs = await self._outputs(order, matrix)
            for number, case in cases.items():
                row = next(row for row in report.rows if row.model == name_of(case.first))
                change = _change(step, row, report if order.releases else None)
                first, last = answers[number].reproduced
                if step is way[0]:
                    first = _gave(case.first, case.outputs, outputs[row.model, step.before.id])
                if step is way[-1]:
                    last = _gave(case.last, case.outputs, outputs[row.model, step.after.id])
                is_diverged = change.verdict == Verdict.DIVERGED
                commits = await self._commits(matrix, row.model, step) if is_diverged else ()
                made = answers[number]
                answers[number] = Asked(
                    (*made.changes, change), (first, last), (*made.commits, *commits)
                )
        return answers

    def _order(self, step: Step) -> Order:
        sources = any(is_source(s.transformers) for s in (step.before, step.after))
        return Order(
            matrix=Path("golden"),
            level="quick",
            causes=True,
            releases=self._wish.releases and step.package == "transformers" and not sources,
            work=self._root,
            lock_age=LOCK_AGE,
            checks=True,
            program=("samebits", "golden"),
        )

    def _matrix(self, calls: Sequence[Called], step: Step) -> Matrix:
        """Return a matrix of one model for each call."""
        data = {
            "version": 1,
            "environments": [_environment(step.before), _environment(step.after)],
            "reference": step.before.id,
            "models": {name_of(call): self._entry(call) for call in calls},
        }
        return load.parse(yamltext.parse(json.dumps(data).encode()), Path.cwd() / "golden")

    def _entry(self, call: Called) -> dict[str, Any]:
        where = {"path": call.source} if Path(call.source).is_dir() else {"hub": call.source}
        inputs: dict[str, Any] = {"file": call.file}
        if call.constants:
            inputs["arguments"] = {name: {"value": v} for name, v in call.constants.items()}
        more = {
            "revision": call.revision,
            "class": call.model_class or None,
            "packages": list(self._wish.packages) or None,
            "trust_remote_code": self._wish.trusts_code or None,
        }
        return (
            where
            | {key: value for key, value in more.items() if value}
            | {
                "dtypes": [call.dtype],
                "attention": [call.attention],
                "devices": [call.device],
                "inputs": {_SET: inputs},
                "greedy": 0,
            }
        )

    async def _outputs(self, order: Order, matrix: Matrix) -> dict[tuple[str, str], str]:
        """Return what each model's first run left in each environment, as text."""
        plain = order.model_copy(update={"releases": False})
        async with opened(plain, self._environ, self._progress, matrix=matrix) as scheduler:
            runs = await scheduler.observe()
            scheduler.finished = True
        return {(c.model, c.stack): of_cell[0].model_dump_json() for c, of_cell in runs.items()}

    async def _commits(self, matrix: Matrix, model: str, step: Step) -> tuple[str, ...]:
        """Return the commits of a clone that make the difference."""
        repo, ends = self._wish.repo, (step.before.transformers, step.after.transformers)
        if repo is None or step.package != "transformers":
            return ()
        of_model = matrix.model_copy(update={"models": (matrix.model(model),)})
        try:
            first, last = map(revision_of, ends)
            options = bisect.Options(model=model, first=first, last=last, repo=repo)
            bisection = await bisect.bisected(of_model, options, self._environ, self._say)
        except SamebitsError as error:  # the judgement stands without it
            return (str(error),)
        return tuple(bisect.lines(bisection))


def revision_of(text: str) -> str:
    """Return what a bisection takes for an environment: its release, or the commit of a checkout.

    Raises:
        StackError: it has none, or something else than its commit.

    """
    if not is_source(text):
        return text
    source = sources.read(text)
    if not source.commit:
        raise StackError(f"{Path(text).name} is at no commit, so none is searched")
    if source.origin != sources.origin_of(source.commit):
        msg = f"{Path(text).name} has changes that are in no commit: commit them to search with --repo"
        raise StackError(msg)
    return source.commit


def name_of(call: Called) -> str:
    """Return the name of a call as a model of a matrix."""
    kind = call.model_class.rpartition(":")[2] or "model"
    return f"{kind}-call-{call.number + 1}"


def _environment(spec: StackSpec) -> dict[str, Any]:
    entry = {"id": spec.id, "transformers": spec.transformers, "torch": spec.torch}
    return entry | ({"base": spec.base} if spec.base else {})


def _gave(call: Called, outputs: frozenset[str], left: str) -> bool:
    """Return True if a capture has these outputs of a call, bit for bit."""
    return bool(outputs) and all(call.outputs.get(name, "?") in left for name in outputs)


def _change(step: Step, row: Row, report: Report | None) -> Change:
    """Return how a call changes; ``report`` is that of a run with the releases in between."""
    cell = next(c for c in row.cells if c.cell.stack == step.after.id)
    return Change(
        package=step.package,
        before=_shown(step.before, step.package),
        after=_shown(step.after, step.package),
        verdict=str(cell.judged),
        headline=cell.headline,
        constant=_constant(cell),
        since="" if report is None or cell.judged in _QUIET else of_cell(cell, report).since,
        cause=_cause(row, cell),
    )


def _shown(spec: StackSpec, package: str) -> str:
    return spec.torch if package == "torch" else spec.transformers


def _constant(cell: CellResult) -> str:
    ladder = cell.ladder
    return ladder.reason if ladder is not None and ladder.rule == "stored constant" else ""


def _cause(row: Row, cell: CellResult) -> str:
    """Return the first operation that differs; of releases with the same bits only the first is traced."""
    alike = (result for result in (cell, *row.cells) if result.judged == cell.judged)
    return next((result.cause.headline for result in alike if result.cause is not None), "")
