"""Judge of a smaller case: observes, compares and judges it again, as a run does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from samebits.capsules.asking import CannotReproduce, feed
from samebits.compare.phases import best_first
from samebits.diagnose import verdict
from samebits.jobs.cache import JobCache
from samebits.jobs.cells import CellRunner
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import ReadyCell
from samebits.jobs.inputs import Feeder
from samebits.jobs.lab import Lab
from samebits.jobs.ladder import climb
from samebits.ladder.asking import Ask
from samebits.ladder.verdicts import judge_by_ladder
from samebits.matrix.arguments import InputSetEntry
from samebits.matrix.spec import ModelSpec, Prompt
from samebits.records.capsule import Feed, Question
from samebits.records.capture import Capture
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId
from samebits.records.ladder import LadderFile
from samebits.records.question import keys
from samebits.stacks.build import Stack
from samebits.stacks.process import StackProcess
from samebits.storage.store import Store


class Party(NamedTuple):
    """One side of a capsule."""

    cell: CellId
    stack: Stack
    python: str
    """The version in its matrix entry."""
    process: StackProcess


class Judge:
    """Observes and judges a smaller case as a run does, with all its files in one folder."""

    def __init__(self, work: Path, probes: str, machine: str) -> None:
        self._work = work
        self._store = Store(work)
        cache = JobCache(work, self._store, probes, machine, fresh=True)
        self._feeder = Feeder(cache)
        self._runner = CellRunner(cache)
        self._lab = Lab(cache)

    async def judge(
        self,
        model: ModelSpec,
        checkpoint: Checkpoint,
        question: Question,
        sides: tuple[Party, Party],
    ) -> CellResult | None:
        """Return the result of the candidate's cell; None if its inputs were different."""
        small = _reduced_model(model, question)
        stacks = [(side.stack, side.process) for side in sides]
        checkpoint = await self._feeder.choose(small, checkpoint, stacks)
        ready = {s.cell: ReadyCell(s.cell, small, checkpoint, s.stack, s.process) for s in sides}
        runs = {cell: best_first(await self._runner.observe(ready[cell])) for cell in ready}
        reference, candidate = sides
        if not all(self._was_fed(question, runs[side.cell][0]) for side in sides):
            return None

        async def climb_all(
            asks: Mapping[CellId, Iterable[Ask]],
        ) -> dict[CellId, list[LadderFile]]:
            return {
                cell: [await climb(self._lab, ready[cell], ask) for ask in cell_asks]
                for cell, cell_asks in asks.items()
            }

        first = verdict.result(
            candidate.cell, runs[candidate.cell], runs[reference.cell], self._store
        )
        return (await judge_by_ladder([first], runs, self._store, climb_all))[0]

    def _was_fed(self, question: Question, capture: Capture) -> bool:
        facts = (capture.signals.forward or {}).get(question.prompt)
        try:
            inputs = feed(question.prompt, facts, self._store) if facts else None
        except CannotReproduce:
            return False
        if inputs is not None and question.kind == "generate":
            inputs.pop("decoder_input_ids", None)
        return inputs == question.feed


def _reduced_model(model: ModelSpec, question: Question) -> ModelSpec:
    """Return the model with the question's inputs as its prompt, and earlier prompts if needed."""
    model = model.without(key.name for key in keys())
    changed: dict[str, object] = {"greedy": question.steps}
    names = list(model.prompts)
    if question.prompt not in names:  # it is made beside any prompts
        return model.model_copy(update=changed)
    earlier = names[: names.index(question.prompt)] if question.before else []
    prompts: dict[str, Prompt | InputSetEntry] = {name: model.prompts[name] for name in earlier}
    prompts[question.prompt] = _reduced_prompt(model.prompts[question.prompt], question.feed)
    return model.model_copy(update=changed | {"prompts": prompts})


def _reduced_prompt(prompt: Prompt | InputSetEntry, inputs: Feed) -> Prompt | InputSetEntry:
    if isinstance(prompt, InputSetEntry):
        return prompt  # if the script has other inputs, it does not show what the run showed
    tokens, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    if tokens is None:
        return prompt
    if mask is None:
        return Prompt(ids=tokens.rows[0])
    rows = [
        Prompt(ids=tuple(t for t, real in zip(row, reals, strict=True) if real))
        for row, reals in zip(tokens.rows, mask.rows, strict=True)
    ]
    return Prompt(batch=tuple(rows))
