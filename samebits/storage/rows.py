"""Cache of compared rows.

A comparison is a pure function of captures, ladders, traces and samebits' own source. A row is
stored under a digest of the source and the paths of its captures, with the identity of every file
that it was computed from. A run compares a row again only if one of these has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from samebits.base.digests import digest_of
from samebits.base.filestate import Dependencies, Identity, changed
from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.matrix.plan import PlannedRow
from samebits.records.comparison import CellResult
from samebits.records.finding import Finding
from samebits.records.graft import Graft
from samebits.records.ids import CellId, Level
from samebits.records.kinds import kinds
from samebits.records.record import Record
from samebits.records.report import RowFacts
from samebits.records.trace import Cause
from samebits.storage.receipt import source_digest
from samebits_wire import seal
from samebits_wire.atomic import replace

FORMAT_VERSION: Literal[14] = 14

CaptureFiles = dict["CellId", tuple["Path", "Path"]]
"""Cell -> paths of the captures of its first and second run."""


class KeptRow(Record):
    """The results of one row that follow from its own files, independent of other rows."""

    format: Literal["samebits-row"] = "samebits-row"
    format_version: Literal[14] = FORMAT_VERSION
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    files: dict[str, Identity | None] = Field(default_factory=dict)
    """The files that it was computed from, with their states at that time."""
    reference: str | None
    """Stack that the others are compared with."""
    results: tuple[CellResult, ...]
    """After the ladder, before causes, findings and matrix.yaml's ``expected``."""
    facts: RowFacts
    outcomes: dict[str, tuple[str, str]]
    """stack -> status of its first run, and the first line of its failure."""
    causes: dict[str, Cause | str] = Field(default_factory=dict)
    """stack -> where the difference starts, or why a trace does not show it; traced cells only."""
    grafts: dict[str, Graft | str] = Field(default_factory=dict)
    """stack -> which parts of the reference restore its bits, or why none was tried."""
    findings: dict[str, tuple[Finding, ...]] = Field(default_factory=dict)
    """stack -> findings of the rules, which also depend on the answers of jobs of questions."""
    asked: str = ""
    """Digest of these answers."""


class RowCache:
    """The cached rows in one work folder."""

    def __init__(
        self, root: Path, dependencies: Dependencies, shown: str, level: Level = "default"
    ) -> None:
        """Use the work folder ``root``.

        ``shown`` has the words that the commands in results have in common, and the matrix's name.

        Rows of different levels are kept apart: a deep run judges by full second runs.
        """
        self._level = level
        self._root = root
        self._dependencies = dependencies
        self._shown = shown
        self._paths: dict[tuple[str, str], Path] = {}
        self._found: dict[tuple[str, str], KeptRow] = {}
        self._files_of: dict[tuple[str, str], list[str]] = {}
        """Row -> the first so many files of the dependencies that belong to it."""
        self._n_sorted = 0

    def find(self, row: PlannedRow, captures: CaptureFiles) -> KeptRow | None:
        """Return the cached row if every file that it was computed from is unchanged."""
        path = self._path(row, captures)
        self._paths[_key(row)] = path
        cached = _read_row(path)
        if cached is None or changed(cached.files, {}) is not None:
            return None
        with contextlib.suppress(OSError):  # another run may have just removed it
            os.utime(path)
        self._dependencies.files.update(cached.files)
        self._found[_key(row)] = cached
        return cached

    def known(self, row: PlannedRow) -> KeptRow | None:
        """Return the row that :meth:`find` returned."""
        return self._found.get(_key(row))

    def keep(self, row: PlannedRow, result: KeptRow) -> KeptRow:
        """Cache a row unless the same run could have another result; return it as it is read back.

        The returned row has been converted to JSON and back, so that a report is the same for a
        cached row and a new one.
        """
        files = self._files(row)
        text = json.dumps(result.model_copy(update={"files": files}).model_dump())
        restored = KeptRow.model_validate(json.loads(text))
        path = self._paths.get(_key(row))
        if path is not None and not self._is_unrepeatable(row):
            with contextlib.suppress(OSError):  # without room on the disk it is compared again
                replace(path, seal.sealed(text), lasting=False)
        return restored

    def _is_unrepeatable(self, row: PlannedRow) -> bool:
        return any(str(cell) in self._dependencies.unrepeatable.values() for cell in row.cells)

    def _files(self, row: PlannedRow) -> Mapping[str, Identity | None]:
        files = self._dependencies.files
        folders = {kind.folder for kind in kinds() if kind.of_row}
        root = f"{os.path.abspath(self._root)}/"  # noqa: PTH100
        if len(files) > self._n_sorted:  # to look at every file for every row takes their product
            for path in islice(files, self._n_sorted, None):
                names = path.removeprefix(root).split("/", 3)
                if path.startswith(root) and len(names) > 3 and names[0] in folders:
                    self._files_of.setdefault((names[1], names[2]), []).append(path)
            self._n_sorted = len(files)
        return {path: files[path] for path in self._files_of.get(_key(row), ())}

    def _path(self, row: PlannedRow, captures: CaptureFiles) -> Path:
        captures_by_cell = {
            str(cell): [str(path) for path in paths] for cell, paths in captures.items()
        }
        key = digest_of(
            [source_digest(), self._shown, self._level, row.reference, captures_by_cell]
        )
        return self._root / "rows" / row.model / str(row.variant) / f"{key[:16]}.json"


def _key(row: PlannedRow) -> tuple[str, str]:
    return row.model, str(row.variant)


def _read_row(path: Path) -> KeptRow | None:
    """Return a cached row; None if it is missing, damaged or of another format."""
    try:
        return KeptRow.model_validate(json.loads(seal.read(path)))
    except (OSError, ValueError, RecursionError, ValidationError):
        return None
