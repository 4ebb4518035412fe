"""The last lines of a run: where the report is, and then the ten lines on top of it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from samebits.records.ids import Verdict
from samebits.records.report import Report
from samebits.reports.head import next_command, sentences
from samebits.text.markdown import visible
from samebits.text.names import CAPSULES
from samebits.text.numbers import plural

MATRIX = "matrix.yaml"
MAX_PASTES = 3
"""Models for which lines to write are printed; the report has those of all."""


def summary(report: Report, paths: Sequence[Path], width: int = 0) -> list[str]:
    """Return the lines to print, with control characters made visible.

    ``paths`` are the files to open, one per format. Sentences are broken at ``width``, unless it is 0; commands, paths
    and lines to paste never are.
    """
    lines = [*to_paste(report), *_capsules(report, paths[0]), where(paths)]
    head = sentences(report)
    if width:
        broken = (
            textwrap.wrap(x, width, subsequent_indent="  ", break_on_hyphens=False) for x in head
        )
        head = [*chain.from_iterable(broken)]
    return [*map(visible, lines), *head, *next_command(report)]


def where(paths: Sequence[Path]) -> str:
    """Return the line that names the files to open."""
    return f"Report: {', '.join(map(str, paths))}"


def to_paste(report: Report, file: str = MATRIX) -> list[str]:
    """Return the lines that let models be observed whose inputs samebits cannot make.

    They belong below the model in matrix.yaml, or into a file of their own.
    """
    cells = report.cells
    pastes = {
        skip.paste: cell.cell.model
        for cell in reversed(cells)
        if cell.judged is Verdict.NOT_OBSERVED
        for skip in cell.skips
        if skip.paste
    }
    lines = []
    for text, model in reversed([*pastes.items()][-MAX_PASTES:]):
        place = f"below {model} in {file}" if file == MATRIX else f"into {file}"
        more = "" if file == MATRIX else f", and add --inputs {file}"
        lines.append(f"Write {place}, with its own shapes{more}:")
        lines += [f"  {line}" for line in text.splitlines()]
    return lines


def _capsules(report: Report, path: Path) -> list[str]:
    """Return a line with the folder of the capsules; [] without capsules."""
    capsules = [c for c in report.cells if c.capsule and c.capsule.path]
    if not capsules:
        return []
    return [f"{plural(len(capsules), 'reproducer')}: {path.parent / CAPSULES}"]
