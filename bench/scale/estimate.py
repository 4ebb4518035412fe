"""The arithmetic of docs/scale.md: what a run of so many cells takes, from recorded inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

TIMES = "\N{MULTIPLICATION SIGN}"
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
    cells = models * releases
    return [
        Line("cells", f"models {TIMES} releases", f"{cells:,}"),
        *_jobs(cells, bench, real_size["models"][0]),
        *_store(cells, scale["real"]),
        *_own(cells, scale["simulated"], scale["real"]),
    ]


def _jobs(cells: int, bench: Mapping[str, Any], sized: Mapping[str, Any]) -> Iterator[Line]:
    whole = bench["whole"]
    for level, spent in (("--quick", bench["quick_level"]["spent"]), ("default", whole["spent"])):
        for where, cpu in zip(
            ("workers", "head"), cpu_per_cell(spent, whole["cells"]), strict=True
        ):
            name = f"CPU hours of jobs, {level}, {where}"
            yield Line(name, f"cells {TIMES} {cpu:.3f} s / 3600", f"{cells * cpu / 3600:,.0f}")
    size = f"models of {sized['parameters'] / 1e9:.2f} B ({sized['name']})"
    for key, level in (("quick", "--quick"), ("default", "default")):
        cost = sized["levels"][key]
        cpu = cost["cpu"] / len(cost["verdicts"])
        name = f"CPU hours of jobs, {level}, all, {size}"
        yield Line(name, f"cells {TIMES} {cpu:.1f} s / 3600", f"{cells * cpu / 3600:,.0f}")


def _store(cells: int, real: Mapping[str, Any]) -> Iterator[Line]:
    objects, size = of_store(real)
    formula = f"cells {TIMES} {objects:.1f}"
    yield Line("objects in the store", formula, f"{cells * objects:,.0f}")
    formula = f"cells {TIMES} {size / 1e3:.0f} kB"
    yield Line("bytes in the store", formula, f"{cells * size / 1e9:,.0f} GB")


def _own(
    cells: int, simulated: Sequence[Mapping[str, Any]], real: Mapping[str, Any]
) -> Iterator[Line]:
    """Yield what samebits takes itself, and what the head holds."""
    small, large = simulated
    seconds = (large["task_cpu"] - large["task_start_cpu"]) / large["cells"]
    yield _hours("samebits' own CPU hours on workers", cells, seconds)
    yield _hours("samebits' own CPU hours on the head", cells, per_cell(small, large, "head_cpu"))
    base, more = (of(small, large, "head_peak_mb") for of in (fixed, per_cell))
    formula = f"{base:.0f} MB + cells {TIMES} {more * 1e3:.1f} kB"
    total = f"{(base + cells * more) / 1e3:,.1f} GB"
    yield Line("memory of the head, fake captures", formula, total)
    for name, key in (
        ("memory of real captures on the head", "captures_in_memory_bytes"),
        ("report.json", "report_json_bytes"),
    ):
        held = real[key] / real["cells"]
        formula = f"cells {TIMES} {held / 1e3:.1f} kB"
        yield Line(name, formula, f"{cells * held / 1e9:,.1f} GB")


def _hours(quantity: str, cells: int, seconds: float) -> Line:
    formula = f"cells {TIMES} {seconds * 1e3:.1f} ms / 3600"
    return Line(quantity, formula, f"{cells * seconds / 3600:,.1f}")
