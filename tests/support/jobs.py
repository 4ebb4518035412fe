"""Jobs of one cell: a fake process, a cache, and a cell that is ready for a job."""

from samebits.jobs.cache import JobCache
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import ReadyCell
from samebits.stacks.process import Ended
from samebits.storage.store import Store
from tests.support.builders import built_stack, model_spec
from tests.support.fakes import leave

CHECKPOINT = Checkpoint(
    model="llama", source="/work/llama", shown_source="build llama", digest="d" * 64
)


class Child:
    """A stack process whose child leaves what ``answer`` returns for a job; None leaves nothing."""

    def __init__(self, answer, ended=None):
        self.answer = answer
        self.ended = ended or Ended(exit=0)
        self.jobs = []

    async def run(self, job):
        self.jobs.append(job)
        answer = self.answer(job)
        if answer is not None:
            leave(job["task"]["result"], answer)
        return self.ended


def job_cache(root, *, probes="p", machine="m", fresh=False, **_):
    """Return the cache of a work folder; options for others are left alone."""
    return JobCache(root, Store(root), probes, machine, fresh=fresh)


def ready_cell(cell, process, *, model=None, checkpoint=CHECKPOINT, stack=None, **_):
    """Return a cell of a small model that ``process`` does jobs for."""
    stack = stack or built_stack(cell.stack)
    return ReadyCell(cell, model or model_spec(), checkpoint, stack, process)
