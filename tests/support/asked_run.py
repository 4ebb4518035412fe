"""A run for questions with jobs of their own: a function answers the jobs."""

from types import SimpleNamespace

from samebits.jobs.common import ReadyCell, ReadyPair
from samebits.matrix.plan import Plan, PlannedRow
from tests.support.builders import Memory, cell_id, model_spec

REF, CELL, LATER = cell_id("4.48"), cell_id("5.2"), cell_id("5.x")
PLAN = Plan(
    rows=(
        PlannedRow(model="llama", variant=REF.variant, cells=(REF, CELL, LATER), reference="4.48"),
    ),
    stacks=("4.48", "5.2", "5.x"),
)


class AskedRun:
    """Calls ``answer`` with the kind, the task and the cell of each job."""

    def __init__(self, answer, plan, results=(), answers=None):
        self.store = Memory()
        self.plan = plan
        self.results = {result.cell: result for result in results}
        self.answers = answers or {}
        self.matrix = SimpleNamespace(model=model_spec)
        self.lab = self
        self.answer = answer

    async def ask(self, kind, task, ready):
        return self.answer(kind, task, ready.cell)

    async def ready(self, cell):
        return ReadyCell(cell, model_spec(), None, None, None)

    async def pair(self, reference, candidate):
        return ReadyPair(await self.ready(reference), await self.ready(candidate))

    async def each(self, phase, description, jobs):
        return {key: await job for key, job in jobs.items()}

    async def with_packages(self, cells, packages):
        return {cell.cell: SimpleNamespace(folder=f"/with/{packages[0]}") for cell in cells}
