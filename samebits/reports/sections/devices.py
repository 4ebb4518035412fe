"""What changed torch's settings while cells ran, and what exists only on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from samebits.records.device import DeviceProbe, DeviceProbeName
from samebits.records.report import Report
from samebits.records.settings import By, SettingChange
from samebits.text.blocks import heading, page, table
from samebits.text.markdown import EMPTY, Markdown, code, prose

_SET_BY: dict[By, str] = {
    "import": "the import of transformers",
    "load": "the load",
    "prompts": "forward or generate()",
}
NOT_ASKED = "no cell of this run is on a GPU (devices in matrix.yaml)"
NOT_REACHED = "no cell on a GPU got that far"


def settings_changed(report: Report) -> Markdown:
    """Return torch's settings that changed while cells ran, with the models that have them."""
    models: dict[tuple[str, SettingChange], dict[str, None]] = {}
    for row in report.rows:
        for stack, changes in row.settings.items():
            for change in changes:
                models.setdefault((stack, change), {})[row.model] = None
    if not models:
        return EMPTY
    headers = ["environment", "setting", "before", "after", "set by", "models"]
    rows = [
        [
            stack,
            code(change.name),
            code(change.before),
            code(change.after),
            _SET_BY[change.by],
            ", ".join(names),
        ]
        for (stack, change), names in models.items()
    ]
    text = "They hold for the whole process, and can change the bits of every model in it."
    return page([heading(2, "Settings of torch that changed"), prose(text), table(headers, rows)])


def only_on_a_gpu(report: Report) -> Markdown:
    """Return how often each probe of a GPU ran, and once for all cells why it was skipped."""
    names = get_args(DeviceProbeName)
    title = heading(2, "What exists only on a GPU")
    if not any(_probes(report)):
        reason = NOT_REACHED if _has_cells(report) else NOT_ASKED
        return page([title, prose(f"Skipped, as {reason}: {', '.join(names)}.")])
    headers = ["probe", "cells that ran it", "other bits than the cell's own way", "skipped"]
    rows = ([name, *_line(report, name)] for name in names)
    return page([title, table(headers, rows, right=tuple(headers[1:3]))])


def _line(report: Report, name: str) -> list[str]:
    probes = [probe for probe in _probes(report) if probe.name == name]
    ran = [probe for probe in probes if not probe.skipped]
    others = sum(probe.distance is None or probe.distance.n_differ > 0 for probe in ran)
    reasons = dict.fromkeys(probe.skipped for probe in probes if probe.skipped)
    return [str(len(ran)), str(others), "; ".join(reasons)]


def _probes(report: Report) -> Iterator[DeviceProbe]:
    for row in report.rows:
        for probes in row.device.values():
            yield from probes


def _has_cells(report: Report) -> bool:
    return any(result.cell.variant.device != "cpu" for result in report.cells)
