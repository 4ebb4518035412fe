"""A climb of the precision ladder over a fake process."""

import asyncio
from pathlib import Path

from samebits.jobs import ladder
from samebits.jobs.cache import JobCache
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import ReadyCell
from samebits.jobs.lab import Lab
from samebits.ladder.asking import Ask
from samebits.records.ladder import LadderFile, Rung
from samebits.stacks.process import Ended
from samebits.storage.store import Store
from samebits_wire.seal import sealed
from tests.support.builders import built_stack, cell_id, model_spec

CELL = cell_id("4.48")


CHECKPOINT = Checkpoint(model="llama", source="/work/llama", said="build llama", digest="d" * 64)


ASK = Ask(forced={"short": (3, 5)}, rounded={"w": "bfloat16"})


class Process:
    """A stack process whose child writes ``file``, or nothing."""

    def __init__(self, file=None, ended=None):
        self.file = file or LadderFile(cell=CELL, rungs={"float64": Rung()})
        self.ended = ended
        self.jobs = []

    async def run(self, job):
        self.jobs.append(job)
        path = Path(job["ladder"]["result"])
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.ended is None:
            path.write_text(sealed(self.file.model_dump_json()), "utf-8")
        return self.ended or Ended(exit=0)


def climb(root, process, **changed):
    options = {"probes": "p", "machine": "m", "fresh": False, "ask": ASK} | changed
    cache = JobCache(
        root, Store(root), options["probes"], options["machine"], fresh=options["fresh"]
    )
    ready = ReadyCell(
        CELL,
        options.get("model", model_spec()),
        options.get("checkpoint", CHECKPOINT),
        options.get("stack", built_stack("4.48")),
        process,
    )
    return asyncio.run(ladder.climb(Lab(cache), ready, options["ask"]))
