"""What every part of a run knows: what is asked, of what, and where."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from samebits.base.digests import machine_fingerprint
from samebits.base.filestate import Dependencies
from samebits.matrix.plan import Plan
from samebits.matrix.spec import Matrix
from samebits.pipeline.order import Order
from samebits.stacks.build import probes_digest
from samebits.stacks.probes import PROBES
from samebits.stacks.slots import Slots, usable_cores
from samebits.storage.sharing import Sharing
from samebits.storage.store import Store
from samebits.terminal.progress import Phases, Progress
from samebits_wire.folders import without_folders


@dataclass(kw_only=True)
class Scope:
    """One run."""

    order: Order
    matrix: Matrix
    plan: Plan
    whole: Plan
    """The plan of all shards, of which ``plan`` may be a part."""
    root: Path
    """The work folder."""
    store: Store
    progress: Progress
    environ: Mapping[str, str]
    dependencies: Dependencies = field(default_factory=Dependencies)
    sharing: Sharing
    """The stores that are shared with other machines."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the report should know, such as a damaged environment."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """A process id is not unique: two containers may share the folder."""

    phases: Phases = field(init=False)
    slots: Slots = field(init=False)
    n_slots: int = field(init=False)
    probes: str = field(init=False)
    """Digest of the probes' source."""
    fingerprint: str = field(init=False)
    """Of the machine."""

    def __post_init__(self) -> None:
        """Set what follows from the rest."""
        cores = usable_cores()
        self.phases = Phases(self.progress)
        self.n_slots = self.order.jobs or cores
        self.slots = Slots(self.n_slots, cores)
        self.probes = probes_digest(PROBES)
        self.fingerprint = machine_fingerprint(self.order.kernels)

    @property
    def matrix_folder(self) -> Path:
        """The folder of the matrix file, from which its paths count."""
        return Path(self.matrix.path).parent

    def note(self, line: str) -> None:
        """Show a line, and keep it for the report; builders call it from their threads."""
        self.notes.append(without_folders(line))
        self.progress.note(line)
