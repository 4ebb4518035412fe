"""The capsules of a run: which cells get one, and their files."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from samebits.capsules.asking import CannotReproduce, ReproductionFailed
from samebits.capsules.choosing import MAX_CAPSULES, chosen
from samebits.capsules.issue import with_side
from samebits.capsules.judging import Party
from samebits.capsules.kept import CapsuleCache, Made
from samebits.capsules.maker import ISSUE, Machine, Maker, Wanted
from samebits.capsules.running import Place, script_environment
from samebits.jobs.common import ReadyCell
from samebits.pipeline.checkpoints import BuildFailed
from samebits.pipeline.scheduler import Scheduler
from samebits.records.capsule import Capsule, script_name
from samebits.records.capture import Capture
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId
from samebits.records.report import Report
from samebits.reports.answer import side as wrong_side
from samebits.text.names import capsule_path
from samebits.text.numbers import plural
from samebits_wire.folders import without_folders


class Capsules:
    """Makes capsules, or takes them from the cache."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._scope = scheduler.scope

    async def made(
        self, results: Sequence[CellResult], runs: Mapping[CellId, tuple[Capture, ...]]
    ) -> dict[CellId, Made]:
        """Return the files of a capsule for each of these cells, or why there is none.

        A cached capsule of the same captures is returned without running its scripts again.
        """
        capsule_cache = CapsuleCache(
            self._scope.root, self._scope.dependencies, fresh=self._scope.order.fresh
        )
        places = {
            result.cell: await self._capsule_place(capsule_cache, result) for result in results
        }
        made = {
            cell: capsule
            for cell, (path, captures) in places.items()
            if (capsule := capsule_cache.find(path, captures)) is not None
        }
        new = [result for result in results if result.cell not in made]
        if new:
            save = {cell: partial(capsule_cache.keep, *place) for cell, place in places.items()}
            made |= await self._new_capsules(new, runs, save)
        return {result.cell: made[result.cell] for result in results}

    async def _capsule_place(
        self, capsule_cache: CapsuleCache, result: CellResult
    ) -> tuple[Path | None, tuple[Path, ...]]:
        """Return the path of a cell's cached capsule, if there can be one, and its captures."""
        pair = [cell for cell in (result.reference, result.cell) if cell is not None]
        if len(pair) < 2 or any(self._scheduler.stack_of(cell) is None for cell in pair):
            return None, ()
        try:
            reference, candidate = await self._scheduler.pair(*pair)
        except BuildFailed:
            return None, ()
        captures = (
            *self._scheduler.cells.paths(reference),
            *self._scheduler.cells.paths(candidate),
        )
        model, sides = candidate.model, (self._party(reference), self._party(candidate))
        environ = script_environment(self._scope.environ, Path(), needs_hub=model.hub is not None)
        return capsule_cache.path(
            result, model, candidate.checkpoint, sides, self._machine_key, environ
        ), captures

    @property
    def _machine_key(self) -> Machine:
        facts = self._scheduler.machine or {}
        return Machine(
            self._scope.fingerprint, facts.get("platform", ""), facts.get("cpu_capability", "")
        )

    async def _new_capsules(
        self,
        results: Sequence[CellResult],
        runs: Mapping[CellId, tuple[Capture, ...]],
        save: Mapping[CellId, Callable[[Made], None]],
    ) -> dict[CellId, Made]:
        work = self._scope.root / "capsules" / str(os.getpid())
        place = Place(self._scope.environ)
        maker = Maker(
            work, self._scope.store, self._scope.probes, self._machine_key, place, self._scope.slots
        )
        description = f"{plural(len(results), 'difference')} to reproduce without samebits"
        jobs = {r.cell: self._capsule(maker, r, runs, save[r.cell]) for r in results}
        try:
            return await self._scheduler.each("capsules", description, jobs)
        finally:
            place.close()
            shutil.rmtree(work, ignore_errors=True)

    async def _ensure_inputs_stored(self, capture: Capture) -> None:
        """Run a cell again if the values of its inputs, which a capsule needs, are not stored."""
        forwards = (capture.signals.forward or {}).values()
        inputs = {ref for facts in forwards for ref in facts.inputs.values()}
        if missing := sorted(ref.hash for ref in inputs if not self._scope.store.has(ref)):
            await self._scheduler.captures(capture.cell, tuple(missing))

    async def _capsule(
        self,
        maker: Maker,
        result: CellResult,
        runs: Mapping[CellId, tuple[Capture, ...]],
        save: Callable[[Made], None],
    ) -> Made:
        cell, reference = result.cell, result.reference
        assert reference is not None
        for side in (reference, cell):
            if (stack := self._scheduler.stack_of(side)) is None:
                return f"environment {side.stack} could not be built"
            if stack.source is not None:
                return f"a script cannot install the transformers of environment {side.stack}"
            if stack.commit is not None:
                return f"a script cannot install the commit of environment {side.stack}"
        n_lost = self._n_lost
        await asyncio.gather(
            *(self._ensure_inputs_stored(runs[side][0]) for side in (reference, cell))
        )
        try:
            pair = await self._scheduler.pair(reference, cell)
            request = Wanted(
                result,
                runs[reference][0],
                runs[cell],
                pair.candidate.model,
                pair.candidate.checkpoint,
                (self._party(pair.reference), self._party(pair.candidate)),
            )
            made = await maker.make(request)
        except (CannotReproduce, BuildFailed) as reason:
            if isinstance(reason, ReproductionFailed):
                self._scope.dependencies.mark_unrepeatable(
                    f"the reproducer of {cell} did not reproduce"
                )
            elif isinstance(reason, CannotReproduce) and self._n_lost == n_lost:
                save(str(reason))
            return str(reason)
        except Exception as error:  # noqa: BLE001  a bug in samebits must not lose the report
            self._scope.dependencies.mark_unrepeatable(
                f"the reproducer of {cell} could not be made"
            )
            return without_folders(f"it could not be made: {type(error).__name__}: {error}")
        save(made)
        return made

    @property
    def _n_lost(self) -> int:
        """Number of jobs of this run without a result; what depends on one may differ next time."""
        return sum(process.n_lost for process in self._scheduler.stacks.processes.values())

    def _party(self, ready: ReadyCell) -> Party:
        python = self._scope.matrix.stack(ready.cell.stack).python
        return Party(ready.cell, ready.stack, python, ready.process)


async def with_capsules(
    scheduler: Scheduler, report: Report, runs: Mapping[CellId, tuple[Capture, ...]]
) -> tuple[Report, dict[str, bytes]]:
    """Return the report with its capsules, and the files of the capsules by path."""
    rows = {cell.cell: row for row in report.rows for cell in row.cells}
    results = {cell.cell: cell for cell in report.cells}
    choice = chosen(results.values(), scheduler.scope.order.capsules)
    chosen_results = [results[cell] for cell in choice.cells]
    made_capsules = await Capsules(scheduler).made(chosen_results, runs)
    capsules = dict.fromkeys(choice.left_out, Capsule(reason=_OVER_LIMIT))
    files: dict[str, bytes] = {}
    for cell, made in made_capsules.items():
        reference = results[cell].reference
        if isinstance(made, str) or reference is None:
            capsules[cell] = Capsule(reason=str(made))
            continue
        path = capsule_path(cell.model, cell.stack)
        judged = wrong_side(results[cell], rows[cell], report)
        text = with_side(made[ISSUE].decode("utf-8"), judged)
        texts = {**made, ISSUE: text.encode("utf-8")}
        files |= {f"{path}/{name}": content for name, content in texts.items()}
        scripts = (script_name(side.stack) for side in (reference, cell))
        capsules[cell] = Capsule(
            path=path, command=" && ".join(f"uv run {name}" for name in scripts)
        )
    return _add_capsules(report, capsules), files


_OVER_LIMIT = f"only {MAX_CAPSULES} are made by default; --repro makes all of them"


def _add_capsules(report: Report, capsules: Mapping[CellId, Capsule]) -> Report:
    rows = (
        row.model_copy(
            update={
                "cells": tuple(
                    cell.model_copy(update={"capsule": capsules.get(cell.cell)})
                    for cell in row.cells
                )
            }
        )
        for row in report.rows
    )
    return report.model_copy(update={"rows": tuple(rows)}) if capsules else report
