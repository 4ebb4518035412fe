"""The arithmetic of docs/scale.md: what a run of so many cells takes, from recorded inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

MODELS, RELEASES = 10_000, 34
ON_WORKERS = frozenset({"cell a", "cell b", "build", "inputs", "imports"})
"""Kinds of jobs that a shard does; a merge, and the head of a cluster, do the others."""


class Line(NamedTuple):
    """One figure of the page."""

    quantity: str
    formula: str
    value: str


def cpu_per_cell(spent: list[dict[str, Any]], cells: int) -> tuple[float, float]:
    """Return the CPU seconds per cell that workers spend, and those that the head spends."""
    of = {entry["kind"]: float(entry["cpu"]) for entry in spent}
    workers = sum(cpu for kind, cpu in of.items() if kind in ON_WORKERS)
    return workers / cells, (sum(of.values()) - workers) / cells


def of_store(real: Mapping[str, Any]) -> tuple[float, float]:
    """Return objects and bytes per cell."""
    kinds = real["store"].values()
    objects, size = (sum(kind[key] for kind in kinds) for key in ("objects", "bytes"))
    return float(objects / real["cells"]), float(size / real["cells"])


def per_cell(small: Mapping[str, Any], large: Mapping[str, Any], key: str) -> float:
    """Return what one more cell adds, from two simulated runs of different sizes."""
    return float((large[key] - small[key]) / (large["cells"] - small["cells"]))


def fixed(small: Mapping[str, Any], large: Mapping[str, Any], key: str) -> float:
    """Return what is left for no cell."""
    return float(small[key] - per_cell(small, large, key) * small["cells"])


def growth(small: Mapping[str, Any], large: Mapping[str, Any], key: str) -> float:
    """Return what a cell of the larger run takes over what one of the smaller takes; 1 is linear."""
    return float(large[key] / large["cells"] / (small[key] / small["cells"]))


def lines(
    bench: Mapping[str, Any],
    scale: Mapping[str, Any],
    real_size: Mapping[str, Any],
    models: int = MODELS,
    releases: int = RELEASES,
) -> list[Line]:
    """Return every figure of a run of so many models under so many releases, in one dtype."""
    cells, whole = models * releases, bench["whole"]
    real, (small, large) = scale["real"], scale["simulated"]
    found = [Line("cells", "models \N{MULTIPLICATION SIGN} releases", f"{cells:,}")]
    for level, spent in (("--quick", bench["quick_level"]["spent"]), ("default", whole["spent"])):
        for where, cpu in zip(
            ("workers", "head"), cpu_per_cell(spent, whole["cells"]), strict=True
        ):
            formula = f"cells \N{MULTIPLICATION SIGN} {cpu:.3f} s / 3600"
            found.append(
                Line(f"CPU hours of jobs, {level}, {where}", formula, f"{cells * cpu / 3600:,.0f}")
            )
    sized = real_size["models"][0]
    for level in ("quick", "default"):
        cost = sized["levels"][level]
        cpu = cost["cpu"] / len(cost["verdicts"])
        shown = "--quick" if level == "quick" else level
        name = f"CPU hours of jobs, {shown}, all, models of {sized['parameters'] / 1e9:.2f} B ({sized['name']})"
        formula = f"cells \N{MULTIPLICATION SIGN} {cpu:.1f} s / 3600"
        found.append(Line(name, formula, f"{cells * cpu / 3600:,.0f}"))
    objects, size = of_store(real)
    found += [
        Line(
            "objects in the store",
            f"cells \N{MULTIPLICATION SIGN} {objects:.1f}",
            f"{cells * objects:,.0f}",
        ),
        Line(
            "bytes in the store",
            f"cells \N{MULTIPLICATION SIGN} {size / 1e3:.0f} kB",
            f"{cells * size / 1e9:,.0f} GB",
        ),
    ]
    cell_cpu = (large["task_cpu"] - large["task_start_cpu"]) / large["cells"]
    found.append(_hours("samebits' own CPU hours on workers", cells, cell_cpu))
    found.append(
        _hours("samebits' own CPU hours on the head", cells, per_cell(small, large, "head_cpu"))
    )
    base = fixed(small, large, "head_peak_mb")
    bare = per_cell(small, large, "head_peak_mb") / 1e3
    held = real["captures_in_memory_bytes"] / real["cells"] / 1e9
    found += [
        Line(
            "memory of the head, fake captures",
            f"{base:.0f} MB + cells \N{MULTIPLICATION SIGN} {bare * 1e6:.1f} kB",
            f"{base / 1e3 + cells * bare:,.1f} GB",
        ),
        Line(
            "memory of real captures on the head",
            f"cells \N{MULTIPLICATION SIGN} {held * 1e6:.0f} kB",
            f"{cells * held:,.0f} GB",
        ),
    ]
    report = real["report_json_bytes"] / real["cells"]
    formula = f"cells \N{MULTIPLICATION SIGN} {report / 1e3:.1f} kB"
    return [*found, Line("report.json", formula, f"{cells * report / 1e9:,.1f} GB")]


def _hours(quantity: str, cells: int, seconds: float) -> Line:
    formula = f"cells \N{MULTIPLICATION SIGN} {seconds * 1e3:.1f} ms / 3600"
    return Line(quantity, formula, f"{cells * seconds / 3600:,.1f}")
