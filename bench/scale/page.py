"""docs/scale.md: what 10,000 models under 34 releases take, from recorded rates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bench.page import REAL_SIZE
from bench.page import RESULTS as BENCH
from bench.scale.estimate import MODELS, RELEASES, growth, lines
from samebits.pipeline.cluster import CELLS_PER_TASK, MODELS_PER_CELL

PATH = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
RESULTS = Path(__file__).parents[1] / "scale.json"

HEAD = """\
# Scale

Written by `nox -s scale` from `scale.json`, `results.json` and `real_size.json` in `bench/`; do not edit.
`nox -s scale -- --quick` simulates a few cells in some minutes and writes nothing here.

What would a run of {models:,} models of the hub under {releases} releases take, in one dtype? No such run was made. The
figures are rates that were measured, times the number of cells, and the formula stands beside each.

## Inputs

- *CPU seconds of jobs*: those of the whole matrix in [performance](performance.md), over its {bench_cells} cells. Its models are
  tiny. What a model of real size takes is that of the first one there, over its cells. Both have the machine of that page.
- *Objects, bytes, captures and report*: a real run of {real_models} tiny models, {real_cells} cells, default level, with a store
  in a folder. Releases with the same bits share tensors, and models of the hub need no checkpoint that is made: of many releases
  a cell leaves less.
- *samebits' own time, and memory*: simulated runs. samebits, its scheduler, the store (a folder) and Ray (local) are the
  real ones. Only a stack's process is fake: it leaves a small capture at once, the same one for all cells. The head
  has a work folder of its own and takes everything from the store. Level `--quick`.

All but the CPU seconds of jobs was measured on {cores} cores of {cpu}, which other programs used as well.

## {models:,} models, {releases} releases
"""

LIMITS = """\
## What does not scale

- **Jobs of the head.** `--on` and shards run the cells elsewhere. The float64 check, training, Trainer, save/load and
  traces start after the comparison, and run on the machine that compares. At the default level that machine has the
  CPU hours of the line *head* above. `--quick` leaves all of them out but the float64 check. A way out is one run for each
  group of models, with `--models` and one store: its head has the jobs of its own models.
- **Memory of the head.** It keeps the captures of all cells until the report is written, so the memory grows with the
  cells. The same way out holds.
- **matrix.yaml.** A file has at most 1 MB and 50,000 values: some 10,000 models with short ids.
- **A task reads the whole matrix.** So tasks grow with the matrix: one has a cell for each {per_cell} models, and at least
  {least}. With a fixed size the readings would grow with the square of the models.
- **Objects.** Each tensor is an object of its own, and tensors are most of the objects. A store that bills requests bills
  each of them.
- **report.json.** It is one file, and whoever reads it has it in memory as a whole.
- **Questions to the hub.** Each task, and the head, ask the hub for the small files of their own models, which say what packages
  a model needs. So a model is asked for in each release, unless the worker has it in its cache.

What grew with the square of models, rows or tasks when this page was first written was mended: the
[changelog](../CHANGELOG.md) has it.
"""


def render(bench: dict[str, Any], scale: dict[str, Any], real_size: dict[str, Any]) -> str:
    """Return the document."""
    real, machine = scale["real"], scale["machine"]
    head = HEAD.format(
        models=MODELS,
        releases=RELEASES,
        bench_cells=bench["whole"]["cells"],
        real_models=real["models"],
        real_cells=real["cells"],
        cores=machine["cores"],
        cpu=machine["cpu"],
    )
    parts = [
        head.strip(),
        _table(["quantity", "formula", "result"], lines(bench, scale, real_size)),
        "## Objects of a store",
        _table(
            ["kind", "objects per cell", "kB per cell"],
            [
                [
                    kind,
                    f"{n['objects'] / real['cells']:.2f}",
                    f"{n['bytes'] / real['cells'] / 1e3:.1f}",
                ]
                for kind, n in real["store"].items()
            ],
        ),
        "## Simulated runs",
        *_simulated(scale),
        LIMITS.format(per_cell=MODELS_PER_CELL, least=CELLS_PER_TASK).strip(),
    ]
    return "\n\n".join(parts) + "\n"


def _simulated(scale: dict[str, Any]) -> list[str]:
    small, large = scale["simulated"]
    ms = 1e3
    rows: list[tuple[str, str, Callable[[dict[str, Any]], str]]] = [
        ("tasks on Ray", "tasks", lambda run: f"{run['tasks']:,}"),
        (
            "start of a task, CPU s",
            "until its first environment",
            lambda run: f"{run['task_start_cpu'] / run['tasks']:.2f}",
        ),
        (
            "a cell on a worker, CPU ms",
            "the rest of the tasks / cells",
            lambda run: f"{(run['task_cpu'] - run['task_start_cpu']) / run['cells'] * ms:.1f}",
        ),
        (
            "a cell on the head, CPU ms",
            "CPU of the head / cells",
            lambda run: f"{run['head_cpu'] / run['cells'] * ms:.1f}",
        ),
        ("memory of the head, MB", "most at once", lambda run: f"{run['head_peak_mb']:.0f}"),
        (
            "objects per cell",
            "all objects / cells",
            lambda run: f"{run['objects'] / run['cells']:.2f}",
        ),
        (
            "report, kB per cell",
            "all its files / cells",
            lambda run: f"{run['report_bytes'] / run['cells'] / ms:.1f}",
        ),
    ]
    headers = ["", "formula", *(f"{run['cells']:,} cells" for run in (small, large))]
    text = (
        f"{small['cells']:,} and {large['cells']:,} cells. A cell of the larger run takes "
        f"{growth(small, large, 'head_cpu'):.2f} of the head's CPU time that one of the smaller takes, start included: "
        f"1 is linear, and what grows with the square of the cells would be {large['cells'] / small['cells']:.0f}."
    )
    sent = scale["submitted"]
    ray = (
        f"{sent['cells']:,} cells ({sent['models']:,} models, {sent['releases']} releases) sent to Ray as tasks of the least "
        f"size that do nothing, {sent['tasks']:,} of them: plan, cut, submission and Ray's scheduling take "
        f"{sent['cpu'] / sent['cells'] * ms:.2f} CPU ms of the submitting process per cell, its memory is at most {sent['peak_mb']:.0f} MB, and "
        f"that of Ray's own process on the head (gcs_server) {sent['ray_head_mb']:.0f} MB."
    )
    return [
        text,
        _table(headers, [[name, how, show(small), show(large)] for name, how, show in rows]),
        ray,
    ]


def _table(headers: list[str], rows: list[Any]) -> str:
    return tabulate(rows, headers, "pipe", disable_numparse=True)


def document() -> str:
    """Return the document of the committed results."""
    return render(*(json.loads(path.read_text("utf-8")) for path in (BENCH, RESULTS, REAL_SIZE)))


def main() -> None:
    """Write the document."""
    PATH.write_text(document(), "utf-8")
