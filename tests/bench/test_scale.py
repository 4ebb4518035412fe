"""bench.scale: its arithmetic, the page, and a tiny run over fake stacks."""

import copy
import json
import os
import sys
from collections import Counter

import pytest

from bench.place import CODE
from bench.scale import estimate, page
from bench.scale.simulate import RELEASES, Simulation
from bench.took import run

SPENT = [
    {"kind": "cell a", "jobs": 10, "cpu": 30.0},
    {"kind": "imports", "jobs": 1, "cpu": 6.0},
    {"kind": "training", "jobs": 5, "cpu": 18.0},
]
BENCH = {"whole": {"cells": 10, "spent": SPENT}, "quick_level": {"spent": SPENT[:2]}}


REAL_SIZE = {
    "models": [
        {
            "name": "dense",
            "parameters": 270_000_000,
            "levels": {
                "quick": {"cpu": 40.0, "verdicts": ["reference", "identical"]},
                "default": {"cpu": 80.0, "verdicts": ["reference", "identical"]},
            },
        }
    ]
}


def simulated(cells):
    """Return the figures of a run that is linear in its cells."""
    return {
        "models": cells // 2,
        "releases": 2,
        "cells": cells,
        "tasks": 2,
        "task_start_cpu": 5.0,
        "task_cpu": 5.0 + 0.01 * cells,
        "objects": 2 * cells,
        "store_bytes": 3000 * cells,
        "head_cpu": 4.0 + 0.02 * cells,
        "head_wall": 9.0,
        "head_peak_mb": 100 + 0.05 * cells,
        "report_json_bytes": 1000 * cells,
        "report_bytes": 5000 * cells,
    }


SCALE = {
    "machine": {"cores": 2, "cpu": "a processor", "load": 0.0, "platform": "Linux"},
    "simulated": [simulated(100), simulated(1000)],
    "submitted": {
        "models": 50_000,
        "releases": 2,
        "cells": 100_000,
        "tasks": 6250,
        "cpu": 50.0,
        "wall": 60.0,
        "peak_mb": 400.0,
        "ray_head_mb": 90.0,
    },
    "real": {
        "cells": 4,
        "models": 2,
        "store": {
            "captures": {"objects": 4, "bytes": 400_000},
            "tensors": {"objects": 40, "bytes": 1_600_000},
        },
        "captures_in_memory_bytes": 2_000_000,
        "report_json_bytes": 80_000,
        "report_bytes": 800_000,
    },
}


def figures(**asked):
    return {line.quantity: line for line in estimate.lines(BENCH, SCALE, REAL_SIZE, **asked)}


def test_every_figure_is_its_formula_of_recorded_inputs():
    found = figures(models=1000, releases=36)
    assert found["cells"].value == "36,000"
    hours = {name.removeprefix("CPU hours of jobs, "): line.value for name, line in found.items()}
    assert (hours["--quick, workers"], hours["--quick, head"]) == ("36", "0")
    assert (
        hours["--quick, all, models of 0.27 B (dense)"],
        hours["default, all, models of 0.27 B (dense)"],
    ) == ("200", "400")
    assert (hours["default, workers"], hours["default, head"]) == ("36", "18")
    assert (
        found["CPU hours of jobs, default, head"].formula
        == "cells \N{MULTIPLICATION SIGN} 1.800 s / 3600"
    )
    assert (found["objects in the store"].value, found["bytes in the store"].value) == (
        "396,000",
        "18 GB",
    )
    assert found["samebits' own CPU hours on workers"].value == "0.1"
    assert found["samebits' own CPU hours on the head"].value == "0.2"
    assert found["memory of the head, fake captures"].value == "1.9 GB"
    assert found["memory of real captures on the head"].value == "18.0 GB"
    assert found["report.json"].value == "0.7 GB"


def test_what_is_fixed_is_no_rate_and_a_square_shows():
    small, large = SCALE["simulated"]
    assert estimate.per_cell(small, large, "head_cpu") == pytest.approx(0.02)
    assert estimate.fixed(small, large, "head_cpu") == pytest.approx(4.0)
    assert estimate.growth(small, large, "head_cpu") < 1
    square = [{"cells": cells, "head_cpu": 1e-4 * cells**2} for cells in (100, 1000)]
    assert estimate.growth(*square, "head_cpu") == pytest.approx(10)


def test_the_page_has_every_figure():
    text = page.render(BENCH, SCALE, REAL_SIZE)
    for line in estimate.lines(BENCH, SCALE, REAL_SIZE):
        assert line.quantity in text
        assert line.value in text
    assert "| captures |" in text
    other = copy.deepcopy(SCALE)
    other["machine"]["cpu"] = "another one"
    assert page.render(BENCH, other, REAL_SIZE) == text.replace("a processor", "another one")


def test_the_committed_page_is_that_of_the_committed_results():
    assert page.PATH.read_text("utf-8") == page.document()


@pytest.mark.processes
def test_a_tiny_run_has_every_cell_once_and_the_head_computes_none_again(tmp_path):
    simulation = Simulation(tmp_path, 3, RELEASES[:2])
    simulation.prepare()
    env = os.environ | CODE | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    matrix = str(simulation.matrix("workers"))
    words = [
        "matrix",
        "--matrix",
        matrix,
        "--store",
        str(simulation.store),
        "--quick",
        "--jobs",
        "1",
    ]
    for shard in ("1/2", "2/2"):
        command = [sys.executable, "-m", "bench.scale.host", "task", *words, "--shard", shard]
        run(command, tmp_path / "host.log", env=env)
    simulation.head()
    found = simulation.figures()
    assert (found["cells"], found["tasks"]) == (6, 2)
    assert 0 < found["task_start_cpu"] < found["task_cpu"]
    report = json.loads((tmp_path / "head" / "reports" / "latest" / "report.json").read_text())
    verdicts = Counter(cell["verdict"] for row in report["rows"] for cell in row["cells"])
    assert verdicts == {"reference": 3, "identical": 3}
    assert "spent" not in report, "the store had all of it"
