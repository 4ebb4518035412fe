"""What the precision ladder asks of a cell."""

from __future__ import annotations

from samebits.jobs.common import ReadyCell
from samebits.jobs.lab import Lab
from samebits.jobs.records import Rungs
from samebits.ladder.asking import Ask
from samebits.records.capture import Failure
from samebits.records.kinds import LADDER
from samebits.records.ladder import LadderFile


async def climb(lab: Lab, ready: ReadyCell, ask: Ask) -> LadderFile:
    """Return what a cell computes on every rung."""
    files = tuple(file for file in ready.model.probe_files if file.name in ask.probes)
    answer = await lab.ask(LADDER, Rungs(**ask.model_dump(), probe_files=files), ready)
    if isinstance(answer, Failure):
        return LadderFile(cell=ready.cell, failure=answer)
    return answer
