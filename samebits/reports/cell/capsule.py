"""Capsules: links to the folders that reproduce a difference, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable

from samebits.records.capsule import Capsule
from samebits.records.comparison import CellResult
from samebits.text.blocks import below, bullets, link, titled
from samebits.text.markdown import Markdown, code, fill


def capsules_of(cells: Iterable[CellResult], above: str = "") -> Markdown:
    """Return a line for each cell for which a capsule was requested.

    ``above`` is the relative path from the page to the folder of the report.
    """
    lines = [_line(cell, cell.capsule, above) for cell in cells if cell.capsule is not None]
    return below(titled("To reproduce without samebits"), bullets(lines))


def _line(cell: CellResult, capsule: Capsule, above: str) -> Markdown:
    cell_name = f"{cell.cell.variant} on {cell.cell.stack}"
    if not capsule.path:
        return fill("{}: no reproducer, because {}", cell_name, capsule.reason)
    folder = link(capsule.path, f"{above}{capsule.path}")
    issue_text = link("text for an issue", f"{above}{capsule.path}/ISSUE.md")
    return fill("{}: {}, in it {}; {}", cell_name, folder, code(capsule.command), issue_text)
