"""Which models are saved by each stack and loaded by every other one."""

from __future__ import annotations

from samebits.matrix.plan import Plan, PlannedRow, first_on_cpu
from samebits.matrix.spec import Matrix
from samebits.questions.crossings.crosser import Crosser
from samebits.questions.crossings.records import CROSSINGS, CrossingsOfRow
from samebits.questions.question import RowName, Run
from samebits.text.numbers import plural


async def ask(run: Run) -> dict[RowName, CrossingsOfRow]:
    """Save each model in every stack, and load each saved copy in every other stack."""
    crosser = Crosser(run.lab)
    run.lab.at_close.append(crosser.close)
    rows = rows_to_cross(run.matrix, run.plan)
    models = plural(len(rows), "model")
    description = f"{models} saved in one release, loaded in the others"
    jobs = {RowName(row.model, str(row.variant)): _cross(row, run, crosser) for row in rows}
    answers = await run.each(CROSSINGS.name, description, jobs)
    return {row: answer for row, answer in answers.items() if answer is not None}


def rows_to_cross(matrix: Matrix, plan: Plan) -> tuple[PlannedRow, ...]:
    """Return the first CPU row of every model with crossings and at least two stacks."""
    rows = first_on_cpu(plan, lambda model: matrix.model(model).asks(CROSSINGS.name))
    return tuple(row for row in rows if len(row.cells) > 1)


async def _cross(row: PlannedRow, run: Run, crosser: Crosser) -> CrossingsOfRow | None:
    """Return the crossings of one model; None without two stacks or without a checkpoint."""
    parties = [await run.ready(cell) for cell in row.cells if run.has_stack(cell)]
    ready = [cell for cell in parties if cell is not None]
    return await crosser.cross(ready) if len(ready) > 1 else None
