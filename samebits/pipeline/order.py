"""What a run is asked to do: the options of the command line as one record.

The command line fills a field from the option of the same name. By default the command in a report
repeats the option, and a receipt answers for it; ``Use`` says where that is not so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from samebits.capsules.choosing import Scope
from samebits.matrix.plan import DEFAULT_MATRIX, Selection
from samebits.records.ids import Level
from samebits.records.record import Record
from samebits.reports.formats.registry import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

WORK = ".samebits"
"""Folder next to matrix.yaml for locks, checkpoints and captures; safe to remove at any time."""


@dataclass(frozen=True)
class Use:
    """What is done with an option besides the run itself."""

    repeated: bool = True
    """The command in the report repeats it, as it decides what the report shows."""
    receipt: bool = True
    """Its effect is in the files of the report and in what the run prints, so a later run with the
    same command may print that again. False: a run with this option leaves no receipt."""
    is_its_word: bool = False
    """The command has the value as an option: ``--deep`` for the level ``deep``."""


class Order(Record):
    """Options of the command line."""

    matrix: Annotated[Path, Use(repeated=False)] = Path(DEFAULT_MATRIX)
    selection: Annotated[Selection, Use(repeated=False)] = Selection()
    fresh: Annotated[bool, Use(repeated=False, receipt=False)] = False
    """Ignore captures of earlier runs."""
    upgrade: Annotated[bool, Use(repeated=False, receipt=False)] = False
    """Resolve the stacks again instead of using their locks."""
    releases: bool | Literal["all"] = False
    """Also run every minor release between the stacks of the matrix; ``all``: every release."""
    scan: str = ""
    """Run the newest stack with the releases of this package instead of the matrix's stacks."""
    level: Annotated[Level, Use(is_its_word=True)] = "default"
    """How much is asked of each model."""
    causes: bool = False
    """Also trace rounding and expected differences to where they start."""
    capsules: Annotated[Scope, Use(repeated=False)] = "none"
    """Differences for which a capsule is made."""
    reports: Annotated[Path | None, Use(repeated=False)] = None
    """Folder of the report, whose user files are never replaced; None if no report is written."""
    formats: Annotated[tuple[str, ...], Use(repeated=False)] = DEFAULT
    """The formats of the report, besides JSON."""
    work: Annotated[Path | None, Use(repeated=False)] = None
    """Folder of what is kept between runs; None for ``.samebits`` beside the matrix."""
    lock_age: Annotated[float | None, Use(repeated=False)] = None
    """Seconds after which the lock of a stack is resolved again; None: it is kept."""
    program: Annotated[tuple[str, ...], Use(repeated=False)] = ("samebits", "matrix")
    """The words before the options, for commands in the report."""
    checks: Annotated[bool, Use(repeated=False)] = False
    """True for ``samebits check``, which has one model and no matrix file."""
    jobs: Annotated[int | None, Use(repeated=False)] = None
    """Cells that run at the same time; None for one per core."""
    store: Annotated[str | None, Use(repeated=False, receipt=False)] = None
    """Folder or URL of the store that this run shares with other machines."""
    shard: Annotated[tuple[int, int] | None, Use(repeated=False, receipt=False)] = None
    """The number of this shard, from 1 on, and how many there are; None for a whole run."""
    on: Annotated[str | None, Use(repeated=False, receipt=False)] = None
    """Address of the Ray cluster that runs the cells, or ``local``; None: this process runs them."""
    merged: Annotated[tuple[str, ...] | None, Use(repeated=False, receipt=False)] = None
    """Folders of the shards to merge, besides the store; None for a run that merges nothing."""
    kernels: Annotated[dict[str, str], Use(repeated=False, receipt=False)] = Field(
        default_factory=dict
    )
    """Environment variables that make every probe run the kernels of another CPU. Captures of
    different settings are never compared. Not an option of the command line, because users compare
    releases on one machine."""
    command: Annotated[str, Use(repeated=False)] = ""
    """The command as the user typed it, for the report."""

    @property
    def work_folder(self) -> Path:
        """The folder of what is kept between runs."""
        return self.work or self.matrix.resolve().parent / WORK

    @property
    def uv_project(self) -> Path | None:
        """The folder whose settings of uv may count: that of matrix.yaml; None for a check."""
        return None if self.checks else self.matrix.resolve().parent

    @property
    def leaves_receipt(self) -> bool:
        """True if a receipt may answer the same command the next time."""
        return all(_use(type(self).model_fields[name]).receipt for name, _ in self._given())

    def repeated_words(self) -> list[str]:
        """Return the options that the command in the report repeats, such as ``--causes``."""
        words = []
        for name, value in self._given():
            use = _use(type(self).model_fields[name])
            if not use.repeated:
                continue
            if use.is_its_word:
                words.append(f"--{value}")
                continue
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [str(value)]
        return words

    def _given(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields that differ from their defaults, with their values."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.get_default(call_default_factory=True):
                yield name, value


def _use(field: FieldInfo) -> Use:
    return next((use for use in field.metadata if isinstance(use, Use)), Use())
