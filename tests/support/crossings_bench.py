"""Crossings of one model over fake processes."""

import asyncio

from samebits.jobs.cache import JobCache
from samebits.jobs.checkpoints import Checkpoint
from samebits.jobs.common import ReadyCell
from samebits.jobs.lab import Lab
from samebits.questions.crossings.crosser import Crosser
from samebits.records.ids import CellId, Variant
from samebits.stacks.process import StackProcess
from samebits.stacks.slots import Slots
from samebits.storage.store import Store
from tests.support.builders import built_stack, model_spec
from tests.support.fakes import FakeProcess

STACKS = ("4.48", "5.0")
VARIANT = Variant(dtype="float32", attention="sdpa", device="cpu")


def run(root, probes, *, stacks=STACKS, fresh=False, digest="c0ffee", locks=None, probed="p"):
    """Cross one model and return outcome by pair, with the report itself."""

    async def starter(python, environment, log):
        return FakeProcess(probes)

    async def main():
        slots = Slots(4)
        parties = [
            ReadyCell(
                CellId(model="llama", variant=VARIANT, stack=id),
                model_spec(),
                Checkpoint(model="llama", source="/c", shown_source="path c", digest=digest),
                built_stack(id, "llama", lock=(locks or {}).get(id)),
                StackProcess(id, f"python{id}", {}, root / f"{id}.log", slots, starter),
            )
            for id in stacks
        ]
        crosser = Crosser(Lab(JobCache(root, Store(root), probed, "machine", fresh=fresh)))
        report = await asyncio.wait_for(crosser.cross(parties), 10)
        crosser.close()
        for party in parties:
            await party.process.close()
        return report

    return asyncio.run(main())
