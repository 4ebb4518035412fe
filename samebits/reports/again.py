"""``samebits report``: the formats of a report from its report.json, without a run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from samebits.base.errors import SamebitsError, shown
from samebits.questions.registry import explained, texts
from samebits.records.report import SCHEMA_VERSION, Report
from samebits.reports import owned, packed
from samebits.reports.formats.registry import FORMATS
from samebits.reports.write import Written, write
from samebits.text.names import CAPSULES, LOCKS

OLDEST_VERSION = 16
"""The oldest schema_version that can be read: since then fields were only added."""


class ReportFileError(SamebitsError):
    """A file is no report.json that this version of samebits can read."""


class Source(NamedTuple):
    """A report.json that was read."""

    report: Report
    document: dict[str, Any]
    """Its content as it was written, whatever its schema_version."""


def read(path: Path) -> Source:
    """Read a report.json, or report.json.xz, of this or an earlier version.

    Raises:
        ReportFileError: it cannot be read, is damaged, no report, or of a version that this one does not
            know.

    """
    try:
        document = json.loads(packed.content(path))
    except OSError as error:
        raise ReportFileError(_damaged(path, error.strerror or str(error))) from error
    except packed.PackedError as error:
        raise ReportFileError(_damaged(path, f"it is not compressed by xz ({error})")) from error
    except (ValueError, RecursionError) as error:
        raise ReportFileError(_damaged(path, "it is not JSON")) from error
    if not isinstance(document, dict) or not {"samebits", "schema_version"} <= document.keys():
        raise ReportFileError(_damaged(path, "it has no schema_version"))
    version = document["schema_version"]
    if version not in range(OLDEST_VERSION, SCHEMA_VERSION + 1):
        raise ReportFileError(
            f"{shown(str(path))} has schema_version {version}; this samebits reads {OLDEST_VERSION} to "
            f"{SCHEMA_VERSION}: make the report again by its command, or use the samebits that wrote it "
            f"({document['samebits']})"
        )
    current = {key: value for key, value in document.items() if key != "schema_version"}
    try:
        report = Report.model_validate_json(json.dumps(current))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ReportFileError(_damaged(path, f"{place}: {first['msg']}")) from error
    report = report if version == SCHEMA_VERSION else _with_explanations(report)
    return Source(_with_texts(report), document)


def _with_texts(report: Report) -> Report:
    """Return a report with the texts that its findings have now; a code that is gone keeps its own."""
    current = {text.code: text for text in texts(text.code for text in report.rules)}
    rules = tuple(current.get(text.code, text) for text in report.rules)
    return report.model_copy(update={"rules": rules})


def _with_explanations(report: Report) -> Report:
    """Return a report of an earlier version with the findings that explain verdicts, which it may lack."""
    if any(cell.explained_by for cell in report.cells):
        return report
    rows = []
    for row in report.rows:
        by_stack = {cell.cell.stack: cell.findings for cell in row.cells}
        cells = tuple(explained(cell, by_stack) for cell in row.cells)
        rows.append(row.model_copy(update={"cells": cells}))
    return report.model_copy(update={"rows": tuple(rows)})


def rewrite(
    source: Source,
    path: Path,
    folder: Path,
    formats: Iterable[str],
    *,
    single_file: bool = False,
    compress: bool = False,
) -> Written:
    """Write formats of a report into a folder; those that the folder has are written again.

    ``path`` is that of the report.json that was read. With ``single_file``, or where report.html is
    one file, it is written as one file; likewise ``compress`` and report.json.xz. Locks and capsules beside it come along; its
    facts stay as they are.

    Raises:
        ReportsError: the report would replace a file that samebits did not write.

    """
    names = {*formats, *(format.name for format in FORMATS if owned.has(folder, format))}
    attachments = {
        name: (path.parent / name).read_bytes()
        for name in source.report.files
        if name.startswith((f"{LOCKS}/", f"{CAPSULES}/")) and (path.parent / name).is_file()
    }
    return write(
        source.report,
        folder,
        attachments,
        names,
        source.document,
        single_file=single_file or owned.has_single_file(folder),
        compress=compress or (folder / packed.COMPRESSED).exists(),
    )


def _damaged(path: Path, what: str) -> str:
    return (
        f"{shown(str(path))} is no report.json that can be read: {what}. "
        "Name the report.json of a report that samebits wrote."
    )
