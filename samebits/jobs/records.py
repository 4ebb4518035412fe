"""What is asked of a cell: the task of a job, and the options of a question's phase.

``probes/samebits_wire/jobs.py`` has the jobs themselves, and the keys of these tasks for the side that
reads them; ``tests/jobs/test_records.py`` holds both together.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, Literal

from samebits.grafts.questions import PatientQuestion
from samebits.ladder.asking import Ask
from samebits.matrix.probefile import ProbeFile
from samebits.records.record import Record


class Options(Record):
    """What the phase of a question is asked."""

    large: bool = False
    """Whether its size keeps nothing from being tried: no made model answers for it."""


class Task(Record):
    """What is asked of a cell, and where the answer goes."""

    result: str = ""

    def facts(self) -> dict[str, Any]:
        """Return what the answer follows from: of a donor's file its name, and no other path."""
        facts = self.model_dump(mode="json", exclude={"result"})
        return facts | ({"donor": PurePath(facts["donor"]).stem} if "donor" in facts else {})

    @property
    def stores(self) -> bool:
        """True if values of tensors are stored."""
        return True


class Rungs(Task, Ask):
    """A question to the ladder."""

    probe_files: tuple[ProbeFile, ...]
    """The files with the probes of the question."""


class Tracing(Task):
    """What to trace of one prompt."""

    prompt: str
    what: Literal["forward", "decode"]
    forced: dict[str, tuple[int, ...]]
    """Row -> the tokens that generate() is forced to choose."""
    steps: int
    """Steps of a decode after which the trace ends."""
    new_tokens: int
    """Tokens that the cell generates; the size of a cache may depend on it."""
    look: tuple[int, ...]
    """Numbers of operations whose inputs and outputs are stored."""
    rung: Literal["own", "float64"]
    scaled: bool = False
    """Whether values of float64 that differ by a power of two count as different."""


class DonorTask(Task):
    """What the reference is to provide for a graft."""

    role: Literal["donor"] = "donor"
    prompt: str
    what: Literal["forward", "decode"]
    forced: dict[str, tuple[int, ...]]
    expected: tuple[str, ...]
    """Hash of each output of the cell; '' if it is not known."""
    weights: tuple[str, ...]
    """Names of the tensors in memory to store."""


class PatientTask(Task, PatientQuestion):
    """Differences to try in the candidate, and how long."""

    role: Literal["patient"] = "patient"
    donor: str
    """Path of the donor's file."""
    hint: tuple[str, ...]
    """Suspects that restored another prompt of the cell; they are tried first."""
    budget: int
    """Maximum number of sets to run."""
    seconds: float
    """Seconds after which no further set is started."""
