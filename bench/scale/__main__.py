"""Measure, write bench/scale.json, and write docs/scale.md anew."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.machine import machine
from bench.place import WORK
from bench.scale import page, real
from bench.scale.simulate import RELEASES, Simulation

FORMAT_VERSION = 1
# History of FORMAT_VERSION:
# 1: first.
SIZES = (50, 250)
"""Models of the two simulated runs; what the second adds is the rate of a cell."""
N_RELEASES = 12
"""Releases of both."""
SUBMITTED = 3000


def simulated(models: int, folder: Path) -> dict[str, Any]:
    """Run a simulation and return what it took; its files are removed."""
    simulation = Simulation(folder / str(models), models, RELEASES[:N_RELEASES])
    simulation.prepare()
    simulation.cluster()
    simulation.head()
    figures = simulation.figures()
    shutil.rmtree(simulation.folder)
    return figures


def submitted(models: int, folder: Path) -> dict[str, Any]:
    """Send the cells of so many models to Ray as empty tasks, and return what that took."""
    simulation = Simulation(folder / "submitted", models, RELEASES)
    simulation.prepare()
    return simulation.submit()


def main() -> None:
    """Run all steps; with --quick, a small simulation that is printed and not kept."""
    parser = argparse.ArgumentParser(prog="nox -s scale --", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="only simulate a few cells, keep nothing"
    )
    sizes = ",".join(map(str, SIZES))
    parser.add_argument(
        "--models", default=sizes, help=f"models of both simulations (default: {sizes})"
    )
    options = parser.parse_args()
    numbers = [int(size) for size in options.models.split(",")]
    (WORK / "bench").mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=WORK / "bench"))
    results: dict[str, Any] = {
        "format": "samebits-bench-scale",
        "format_version": FORMAT_VERSION,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
    }
    try:
        if options.quick:
            print(json.dumps(simulated(10, folder), indent=1))
            return
        results["simulated"] = [simulated(size, folder) for size in numbers]
        results["submitted"] = submitted(SUBMITTED, folder)
        results["real"] = real.measure(folder / "real")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page.RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page.main()


if __name__ == "__main__":
    main()
