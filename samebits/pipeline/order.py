"""What a run is asked to do: the options of the command line as one record.

Each field with an ``Option`` is an option: its name, type, default and description are those of the
field. By default the command in a report repeats it, and a receipt answers for it; ``Use`` says where
that is not so.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from samebits.base.errors import shown
from samebits.base.homes import expanded
from samebits.base.options import Option, name_of, option_of, positive
from samebits.base.workfolder import WORK
from samebits.capsules.choosing import Scope
from samebits.matrix.plan import DEFAULT_MATRIX, Selection
from samebits.records.ids import Level
from samebits.records.record import Record
from samebits.reports.formats.registry import DEFAULT, FORMATS, NAMES
from samebits.text.lists import comma_list

_DAY = 24 * 60
"""Minutes."""


@dataclass(frozen=True)
class Use:
    """What is done with an option besides the run itself."""

    repeated: bool = True
    """The command in the report repeats it, as it decides what the report shows."""
    receipt: bool = True
    """Its effect is in the files of the report and in what the run prints, so a later run with the
    same command may print that again. False: a run with this option leaves no receipt."""


def _formats(text: str) -> tuple[str, ...]:
    """Return the names of formats, which commas separate. Raises ArgumentTypeError."""
    names = comma_list(text)
    unknown = [name for name in names if name not in NAMES]
    if unknown or not names:
        msg = f"{shown(unknown[0] if unknown else text)} is no format: write some of {', '.join(NAMES)}"
        raise argparse.ArgumentTypeError(msg)
    return names


def _each_once(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return every format once, or the usual ones if none is named."""
    return tuple(dict.fromkeys(names or DEFAULT))


def _minutes(text: str) -> float:
    """Return a positive number of minutes, at most a day. Raises ArgumentTypeError."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= _DAY:
        msg = f"{text!r} is no number of minutes: write one such as 10, at most {_DAY:,}"
        raise argparse.ArgumentTypeError(msg)
    return minutes


def _shard(text: str) -> tuple[int, int]:
    """Return the number of a shard and how many there are. Raises ArgumentTypeError."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        msg = f"{text!r} is no shard: write I/N, such as 2/8, with I from 1 to N"
        raise argparse.ArgumentTypeError(msg)
    return int(number), int(of)


_EACH_FORMAT = "; ".join(f"{format.name}: {format.what}" for format in FORMATS)
_LEVELS = {
    "quick": "outputs and the float64 check only: no consistency checks, API use, processors, saving and loading, causes",
    "deep": "no size limits, no shortcuts (slow)",
}


class Files(Record):
    """Which files of a report are written, and where."""

    # its user files are never replaced; None if no report is written
    reports: Annotated[Path | None, Option("DIR"), Use(repeated=False)] = None
    """Folder for the report."""
    formats: Annotated[
        tuple[str, ...],
        Option("NAMES", "--format", type=_formats, action="extend", default=None),
        Use(repeated=False),
        BeforeValidator(_each_once),
    ] = Field(
        DEFAULT,
        description=f"Formats of the report, such as md,junit; repeatable: {_EACH_FORMAT}. "
        f"report.json is always written. Default: {','.join(DEFAULT[1:])}.",
    )
    single_file: Annotated[bool, Option(), Use(repeated=False)] = False
    """Write report.html as one file that holds all its pages, to send or to attach."""
    compress: Annotated[bool, Option(), Use(repeated=False)] = False
    """Write report.json.xz in place of report.json, for a report that is committed."""


class Order(Files):
    """Options of the command line."""

    matrix: Annotated[Path, Option("FILE"), Use(repeated=False)] = Path(DEFAULT_MATRIX)
    """The matrix to run (default: matrix.yaml)."""
    selection: Annotated[Selection, Use(repeated=False)] = Selection()
    fresh: Annotated[bool, Option(), Use(repeated=False, receipt=False)] = False
    """Run every cell again; reuse no results of earlier runs."""
    upgrade: Annotated[bool, Option(), Use(repeated=False, receipt=False)] = False
    """Re-resolve environments to the newest matching releases."""
    strict: Annotated[bool, Option()] = False
    """Exit with code 4 if changed code of transformers within reach of a model that passes did not run
    in any check."""
    strict_findings: Annotated[bool, Option()] = False
    """Exit with code 4 if every cell passes and one release alone raises, or is wrong in silence, in a check beside
    the verdict."""
    releases: Annotated[bool | Literal["all"], Option("all", apart="between")] = False
    """Also run every minor release between the environments; --releases all: every patch release, too, as a
    bug may live in one of them alone."""
    scan: Annotated[str | None, Option("PACKAGE", apart="between")] = None
    """Run the newest environment with each minor release of this package that fits, or each patch release if
    only one does, such as tokenizers or 'accelerate>=1.4', and with transformers as it is."""
    level: Annotated[Level, Option(words=_LEVELS)] = "default"
    """How much is asked of each model."""
    causes: Annotated[bool, Option()] = False
    """Also trace rounding and expected differences to their causes."""
    repro: Annotated[bool | None, Option()] = None
    """Write a reproducer for every difference: a folder with scripts that show it without samebits.
    --no-repro: write none. Default: of a matrix for differences that make the run fail; with --releases,
    --scan or --quick, and of samebits check, none."""
    capsules: Annotated[Scope, Use(repeated=False)] = "none"
    """Differences for which a capsule is made."""
    work: Annotated[Path | None, Use(repeated=False)] = None
    """Folder of what is kept between runs; None for ``.samebits`` beside the matrix."""
    lock_age: Annotated[float | None, Use(repeated=False)] = None
    """Seconds after which the lock of a stack is resolved again; None: it is kept."""
    program: Annotated[tuple[str, ...], Use(repeated=False)] = ("samebits", "matrix")
    """The words before the options, for commands in the report."""
    checks: Annotated[bool, Use(repeated=False)] = False
    """True for ``samebits check``, which has one model and no matrix file."""
    jobs: Annotated[int | None, Option("N", type=positive), Use(repeated=False)] = None
    """Number of cells that run at the same time (default: number of cores)."""
    warm: Annotated[float, Option("MINUTES", type=_minutes), Use(repeated=False)] = 0.0
    """Keep the imported environments in memory for this long after the run, so that the next run starts at
    once; samebits warm lists and ends them (Linux)."""
    store: Annotated[str | None, Option("URL"), Use(repeated=False, receipt=False)] = None
    """Share results with other machines: a folder, or s3://, gs://, az:// with a bucket."""
    shard: Annotated[
        tuple[int, int] | None, Option("I/N", type=_shard), Use(repeated=False, receipt=False)
    ] = None
    """Run only part I of N, and leave its results in --store or shards/I-of-N for samebits merge."""
    on: Annotated[str | None, Option("ADDRESS"), Use(repeated=False, receipt=False)] = None
    """Run the cells on a Ray cluster: local, auto or ray://HOST:PORT (needs samebits[ray])."""
    # besides the store; None for a run that merges nothing
    merged: Annotated[
        tuple[str, ...] | None,
        Option("DIR", "", nargs="*", type=expanded),
        Use(repeated=False, receipt=False),
    ] = None
    """The results of shards: shards/*."""
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
            if not _use(type(self).model_fields[name]).repeated:
                continue
            option = option_of(type(self), name)
            if option and option.words:
                words.append(f"--{value}")
                continue
            flag = name_of(type(self), name)
            words.append(f"--no-{flag.removeprefix('--')}" if value is False else flag)
            words += [] if isinstance(value, bool) else [str(value)]
        return words

    def _given(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields that differ from their defaults, with their values."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.get_default(call_default_factory=True):
                yield name, value


def _use(field: FieldInfo) -> Use:
    return next((use for use in field.metadata if isinstance(use, Use)), Use())
