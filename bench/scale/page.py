"""docs/scale.md: what 10,000 models under 34 releases take, from recorded rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bench.page import RESULTS as BENCH
from bench.scale.estimate import MODELS, RELEASES, growth, lines

PATH = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
RESULTS = Path(__file__).parents[1] / "scale.json"

HEAD = """\
# Scale

Written by `nox -s scale` from `bench/scale.json` and `bench/results.json`; do not edit.
`nox -s scale -- --quick` simulates a few cells in some minutes and writes nothing here.

What would a run of {models:,} models of the hub under {releases} releases take, in one dtype? No such run was made. The
figures are rates that were measured, times the number of cells, and the formula stands beside each.

## Inputs

- *CPU seconds of jobs*: those of the whole matrix in [performance](performance.md), over its {bench_cells} cells. Its models are
  tiny, so this is what samebits asks and not what a model's size adds. A model of 0.27 B parameters takes the
  multiples of its bare forwards that stand there.
- *Objects, bytes, captures and report*: a real run of {real_models} tiny models, {real_cells} cells, with a store in a folder.
- *samebits' own time, and memory*: simulated runs. samebits, its scheduler, the store (a folder) and Ray (local) are the
  real ones. Only a stack's process is fake: it leaves a small capture at once, the same one for all cells. The head
  has a work folder of its own and takes everything from the store. Level `--quick`.

Rates were measured on {cores} cores of {cpu}, which other programs used as well.

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
- **Requests.** A cell costs a handful of requests to the store, one after the other. To compare two releases of
  packages, the head asks the hub for the small files of each model once.

What grew with the square of rows, models or tasks when this page was first written was mended: the
[changelog](../CHANGELOG.md) has it.
"""


def render(bench: dict[str, Any], scale: dict[str, Any]) -> str:
    """Return the document."""
    from samebits.pipeline.cluster import CELLS_PER_TASK, MODELS_PER_CELL  # noqa: PLC0415

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
        _table(["quantity", "formula", "result"], lines(bench, scale)),
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
    rows = [
        ["tasks on Ray", "tasks", lambda run: f"{run['tasks']:,}"],
        [
            "start of a task, CPU s",
            "until its first environment",
            lambda run: f"{run['task_start_cpu'] / run['tasks']:.2f}",
        ],
        [
            "a cell on a worker, CPU ms",
            "the rest of the tasks / cells",
            lambda run: f"{(run['task_cpu'] - run['task_start_cpu']) / run['cells'] * ms:.1f}",
        ],
        [
            "a cell on the head, CPU ms",
            "CPU of the head / cells",
            lambda run: f"{run['head_cpu'] / run['cells'] * ms:.1f}",
        ],
        ["memory of the head, MB", "most at once", lambda run: f"{run['head_peak_mb']:.0f}"],
        [
            "objects per cell",
            "all objects / cells",
            lambda run: f"{run['objects'] / run['cells']:.2f}",
        ],
        [
            "report, kB per cell",
            "all its files / cells",
            lambda run: f"{run['report_bytes'] / run['cells'] / ms:.1f}",
        ],
    ]
    headers = ["", "formula", *(f"{run['cells']:,} cells" for run in (small, large))]
    text = (
        f"{small['cells']:,} and {large['cells']:,} cells. A cell of the larger run takes "
        f"{growth(small, large, 'head_cpu'):.2f} of the head's CPU time that one of the smaller takes, start included: "
        "what grows with the square of the cells would be more than 1."
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
        _table(headers, [[name, how, *map(show, (small, large))] for name, how, show in rows]),
        ray,
    ]


def _table(headers: list[str], rows: list[Any]) -> str:
    return tabulate(rows, headers, "pipe", disable_numparse=True)


def document() -> str:
    """Return the document of the committed results."""
    return render(*(json.loads(path.read_text("utf-8")) for path in (BENCH, RESULTS)))


def main() -> None:
    """Write the document."""
    PATH.write_text(document(), "utf-8")
