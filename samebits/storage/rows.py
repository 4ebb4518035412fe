"""What did an earlier run find of a row, and does that still hold?

Comparing is pure: the same captures, ladders and traces, read by the same source, give the same
results. So a row is kept under the digest of source and captures' names, with the identity of every
file that it was made of, and a run compares only the rows of which one of these is another.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from samebits.base import seal
from samebits.base.atomic import replace
from samebits.base.digests import digest_of
from samebits.base.filestate import Identity, changed
from samebits.records.band import Band
from samebits.records.capture import AttentionCall
from samebits.records.comparison import CellResult
from samebits.records.finding import Finding
from samebits.records.graft import Graft
from samebits.records.record import Record
from samebits.records.relations import InvariantsSignal
from samebits.records.report import AttentionReport, LoadReport
from samebits.records.tokenizer import TokenizerSignal
from samebits.records.trace import Cause
from samebits.records.usage import UsageSignal
from samebits.storage.receipt import source_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from samebits.base.filestate import Ledger
    from samebits.matrix.plan import PlannedRow
    from samebits.records.ids import CellId

FORMAT_VERSION: Literal[3] = 3
# History of FORMAT_VERSION:
# 1: first.
# 2: it bears a seal.
# 3: bands.

CaptureFiles = dict["CellId", tuple["Path", "Path"]]
"""Where both runs of each cell of a row leave their captures."""

_KINDS = {"captures", "ladders", "traces", "grafts"}
"""Folders of work whose files lie below model and variant, so that they name the row they are of."""


class KeptRow(Record):
    """Everything that the files of one row say, and nothing that depends on another row."""

    format: Literal["samebits-row"] = "samebits-row"
    format_version: Literal[3] = FORMAT_VERSION
    files: dict[str, Identity | None] = Field(default_factory=dict)
    """What it was made of, as the files were."""
    reference: str | None
    """Stack that the others are compared with."""
    results: tuple[CellResult, ...]
    """After the ladder, before causes, findings and matrix.yaml's ``expected``."""
    bands: tuple[Band, ...] = ()
    """Which neighbouring stacks are the same."""
    outcomes: dict[str, tuple[str, str]]
    """stack -> status of its first run, and the first line of why it failed."""
    attention: dict[str, AttentionReport]
    calls: tuple[AttentionCall, ...]
    invariants: dict[str, InvariantsSignal]
    integrity: dict[str, LoadReport]
    tokenizers: dict[str, TokenizerSignal]
    usage: dict[str, UsageSignal]
    causes: dict[str, Cause | str] = Field(default_factory=dict)
    """stack -> where it starts, or why no trace says it; of the cells that were traced."""
    grafts: dict[str, Graft | str] = Field(default_factory=dict)
    """stack -> which pieces of the reference restore it, or why none was tried; of the cells asked."""
    findings: dict[str, tuple[Finding, ...]] = Field(default_factory=dict)
    """stack -> what the rules say, given what crossed into its cell."""
    crossings: str = ""
    """Digest of that."""


class KeptRows:
    """The rows that earlier runs left under one folder."""

    def __init__(self, root: Path, ledger: Ledger, shown: str) -> None:
        """Take the folder of work; ``shown`` is the matrix's name as results tell it."""
        self._root = root
        self._ledger = ledger
        self._shown = shown
        self._paths: dict[tuple[str, str], Path] = {}
        self._known: dict[tuple[str, str], KeptRow] = {}

    def find(self, row: PlannedRow, captures: CaptureFiles) -> KeptRow | None:
        """Return what is kept of a row, if every file that it was made of is as it was."""
        path = self._path(row, captures)
        self._paths[_name(row)] = path
        kept = _read(path)
        if kept is None or changed(kept.files, {}) is not None:
            return None
        with contextlib.suppress(OSError):  # another run may have just removed it
            os.utime(path)
        self._ledger.files.update(kept.files)
        self._known[_name(row)] = kept
        return kept

    def known(self, row: PlannedRow) -> KeptRow | None:
        """Return what :meth:`find` found of a row, or :meth:`keep` kept."""
        return self._known.get(_name(row))

    def keep(self, row: PlannedRow, found: KeptRow) -> KeptRow:
        """Return what the next run will read of a row, and keep it if it would find the same.

        What is returned went through the form that it has on disk, so that no report can tell a
        kept row from a new one.
        """
        files = self._files(row)
        text = json.dumps(found.model_copy(update={"files": files}).model_dump())
        kept = KeptRow.model_validate(json.loads(text))
        path = self._paths.get(_name(row))
        if path is not None and not self._is_unsettled(row):
            replace(path, seal.sealed(text), lasting=False)
        return kept

    def _is_unsettled(self, row: PlannedRow) -> bool:
        return any(str(cell) in self._ledger.unsettled.values() for cell in row.cells)

    def _files(self, row: PlannedRow) -> Mapping[str, Identity | None]:
        folders = tuple(
            f"{os.path.abspath(self._root)}/{kind}/{row.model}/{row.variant}/"  # noqa: PTH100
            for kind in _KINDS
        )
        return {p: known for p, known in self._ledger.files.items() if p.startswith(folders)}

    def _path(self, row: PlannedRow, captures: CaptureFiles) -> Path:
        files = {str(cell): [str(path) for path in both] for cell, both in captures.items()}
        key = digest_of([source_digest(), self._shown, row.reference, files])
        return self._root / "rows" / row.model / str(row.variant) / f"{key[:16]}.json"


def _name(row: PlannedRow) -> tuple[str, str]:
    return row.model, str(row.variant)


def _read(path: Path) -> KeptRow | None:
    """Return a kept row; None if it is missing, not whole or of another format."""
    try:
        return KeptRow.model_validate(json.loads(seal.read(path)))
    except (OSError, ValueError, RecursionError, ValidationError):
        return None
