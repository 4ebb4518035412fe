"""A climb of the precision ladder over a fake process."""

import asyncio

from samebits.jobs import ladder
from samebits.jobs.lab import Lab
from samebits.ladder.asking import Ask
from samebits.records.ladder import LadderFile, Rung
from tests.support.builders import cell_id
from tests.support.jobs import Child, job_cache, ready_cell

CELL = cell_id("4.48")
ASK = Ask(forced={"short": (3, 5)}, rounded={"w": "bfloat16"})


class Process(Child):
    """A stack process whose child writes ``file``, or nothing and ends as ``ended`` says."""

    def __init__(self, file=None, ended=None):
        file = file or LadderFile(cell=CELL, rungs={"float64": Rung()})
        super().__init__(lambda _: file if ended is None else None, ended)


def climb(root, process, *, ask=ASK, **changed):
    lab = Lab(job_cache(root, **changed))
    return asyncio.run(ladder.climb(lab, ready_cell(CELL, process, **changed), ask))
