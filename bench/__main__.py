"""``nox -s bench``: measures everything in one run and writes results.json and the document.

Every figure that counts is a ratio of two things measured here, in this run, on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import large, page, warm
from bench.machine import machine
from bench.place import CODE, WORK, Place, one_model, zoo_cut
from bench.took import Took, run

FORMAT_VERSION = 1
# History of FORMAT_VERSION:
# 1: first.

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
ADDED = {
    "build": {
        "architecture": "llama",
        "seed": 77,
        "config": {
            "vocab_size": 96,
            "hidden_size": 48,
            "intermediate_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
        },
    },
    "dtypes": ["float32"],
    "relations": False,
}
"""The model that is added: so small that nearly all of its time is overhead."""


class Bench:
    """The steps of one run; later steps read what earlier ones wrote."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.quick = quick
        self.matrix = (
            zoo_cut(4, ["float32"], 2) if quick else zoo_cut(40, ["float32", "bfloat16"], 4)
        )
        self.place = Place(folder / "whole", self.matrix)
        self.log = folder / "bench.log"
        self.cold = Took(0.0, 0.0, 0, 0)
        self.tiny = Took(0.0, 0.0, 0, 0)
        """A run of one tiny model: what is held there is torch and transformers."""

    def stacks(self) -> dict[str, Any]:
        """Build the stacks, or find them built; the other steps leave this time out."""
        models = dict(list(self.matrix["models"].items())[:1])
        small = Place(self.folder / "first", self.matrix | {"models": models, "expected": []})
        return small.samebits(command="probe").rounded()

    def whole(self) -> dict[str, Any]:
        """Run the whole matrix: cold, compared again, unchanged, and with one model more."""
        self.cold = self.place.samebits()
        report = self.place.report()
        cells = [cell for row in report["rows"] for cell in row["cells"]]
        self.place.forget("rows", "receipts")
        again = self.place.samebits()
        self.place.nox()  # another environment than the one above: this leaves its own receipt
        unchanged = min((self.place.nox() for _ in range(3)), key=lambda took: took.wall)
        models = self.matrix["models"]
        self.place.samebits()
        self.place.write(self.matrix | {"models": models | {"added": ADDED}})
        added = self.place.samebits()
        alone = Place(
            self.folder / "alone", self.matrix | {"models": {"added": ADDED}, "expected": []}
        )
        self.tiny = alone.samebits()
        folder = self.place.folder / "reports" / "latest"
        return {
            "models": len(models),
            "stacks": len(self.matrix["environments"]),
            "rows": len(report["rows"]),
            "cells": len(cells),
            "cold": self.cold.rounded(),
            "compared again": again.rounded(),
            "unchanged, by nox": unchanged.rounded(),
            "one model added": added.rounded(),
            "that model alone": self.tiny.rounded(),
            "phases": self._phases(),
            "spent": report["spent"],
            "report_json_mb": round((folder / "report.json").stat().st_size / 1e6, 2),
            "report_md_kb": round((folder / "report.md").stat().st_size / 1e3, 1),
        }

    def quick_level(self) -> dict[str, Any]:
        """Run the same matrix with ``--quick``, cold, in a folder of its own."""
        place = Place(self.folder / "quick", self.matrix)
        took = place.samebits("--quick")
        return {**took.rounded(), "spent": place.report()["spent"]}

    def _phases(self) -> dict[str, float]:
        """Return the seconds that the cells spent in each phase, over all cells and both runs."""
        seconds_of: dict[str, float] = {}
        for path in self.place.work.glob("captures/*/*/*/*/?.json"):
            for name, seconds in json.loads(path.read_text("utf-8"))["seconds"].items():
                seconds_of[name] = seconds_of.get(name, 0.0) + seconds
        names = sorted(seconds_of, key=lambda name: -seconds_of[name])
        return {name: round(seconds_of[name], 1) for name in names}

    def work(self) -> dict[str, Any]:
        """Run a quarter of the matrix cold, and count the CPU seconds of transformers' own calls.

        Of a call that an instrument watches, only the time that it takes unwatched is needed; a
        second run measures it. The rest, beside imports, loads, forwards and saves, is samebits' own.
        """
        matrix = self.matrix
        if not self.quick:
            matrix = zoo_cut(10, ["float32", "bfloat16"], 4)
        place = Place(self.folder / "counted", matrix)
        took = place.samebits(program="bench.counted_run")
        imports = {job["kind"]: job["cpu"] for job in place.report()["spent"]}["imports"]
        calls = place.counted()
        unwatched = self._unwatched(matrix, calls)
        needed = imports + sum(unwatched.get(kind, cpu) for kind, (_, cpu) in calls.items())
        return {
            "cpu": round(took.cpu, 2),
            "imports": imports,
            "calls": {
                kind: {"calls": n, "cpu": round(cpu, 2)}
                for kind, (n, cpu) in sorted(calls.items(), key=lambda item: -item[1][1])
            },
            "unwatched": {kind: round(cpu, 2) for kind, cpu in unwatched.items()},
            "needed": round(needed, 2),
            "times": _ratio(took.cpu, needed),
        }

    def _unwatched(
        self, matrix: dict[str, Any], calls: dict[str, tuple[int, float]]
    ) -> dict[str, float]:
        """Return kind of watched call -> the CPU seconds that they take unwatched.

        Those of another run, by what the kind's other calls take in both.
        """
        place = Place(self.folder / "unwatched", matrix)
        (place.work / "counted").mkdir()
        (place.work / "counted" / "without").touch()
        place.samebits(program="bench.counted_run")
        counts = place.counted()
        watched = {kind: kind.partition(", ")[0] for kind in calls if kind.endswith(", watched")}
        return {
            kind: counts.get(f"{plain}, not watched", (0, 0.0))[1]
            * calls[plain][1]
            / counts[plain][1]
            for kind, plain in watched.items()
        }

    def bare(self) -> dict[str, Any]:
        """Load, run and decode everything once in one bare process per stack."""
        took, n = [], 0
        for stack, python in self.place.stacks().items():
            jobs = list(self.place.bare_jobs(stack))
            n += len(jobs)
            path = self.folder / f"bare-{stack}.json"
            path.write_text(json.dumps(jobs), "utf-8")
            took.append(run([python, str(HERE / "bare.py"), str(path)], self.log))
        cpu, wall = sum(t.cpu for t in took), sum(t.wall for t in took)
        return {
            "cells": n,
            "wall": round(wall, 2),
            "cpu": round(cpu, 2),
            "times": _ratio(self.cold.cpu, cpu),
        }

    def by_hand(self) -> dict[str, Any]:
        """Run one process per model, dtype and stack, dump, and compare: a sample, scaled up."""
        stacks = self.place.stacks()
        took: list[Took] = []
        jobs = {stack: {j["name"]: j for j in self.place.bare_jobs(stack)} for stack in stacks}
        total = sum(map(len, jobs.values()))
        names = [name for name in jobs[next(iter(stacks))] if all(name in j for j in jobs.values())]
        sample = names[:: max(1, len(names) // (2 if self.quick else 8))]
        for name in sample:
            dumps = []
            for stack, python in stacks.items():
                path = self.folder / "by-hand.json"
                path.write_text(json.dumps([jobs[stack][name]]), "utf-8")
                dumps.append(self.folder / "dumps" / stack)
                bare = [python, str(HERE / "bare.py"), str(path), "--dump", str(dumps[-1])]
                took.append(run(bare, self.log))
            for dump in dumps[1:]:
                pair = [str(folder / f"{name}.pt") for folder in (dumps[0], dump)]
                python = next(iter(stacks.values()))
                took.append(run([python, str(HERE / "by_hand.py"), *pair], self.log))
        scale = total / (len(sample) * len(stacks))
        cpu, wall = (scale * sum(t) for t in ((t.cpu for t in took), (t.wall for t in took)))
        return {
            "cells": total,
            "sampled": len(sample) * len(stacks),
            "wall": round(wall, 2),
            "cpu": round(cpu, 2),
            "times": _ratio(self.cold.cpu, cpu),
        }

    def rates(self) -> dict[str, Any]:
        """Hash and compare one large tensor, in a stack and in the host."""
        megabytes = 128 if self.quick else 1024
        rates = {}
        for stack, python in list(self.place.stacks().items())[-1:]:
            command = [python, str(HERE / "stack_rates.py"), str(megabytes)]
            rates[f"probe, {stack}"] = self._json(command)
        host = [sys.executable, "-m", "bench.host_rates", str(megabytes)]
        rates["host"] = self._json([*host, str(self.folder / "rates")])
        return rates

    def traces(self) -> dict[str, Any]:
        """Trace forwards of several sizes."""
        script = HERE / "trace_overhead.py"
        if not script.exists():
            return {}
        stacks = list(self.place.stacks().items())
        repeats = ["--repeats", "1"] if self.quick else []
        return {
            stack: self._json([python, str(script), "--json", *repeats])
            for stack, python in (stacks[0], stacks[-1])
        }

    def memory(self) -> dict[str, Any]:
        """Run a model of each size through the oldest and the newest stack, one cell at a time."""
        results: dict[str, Any] = {}
        for gigabytes in (0.1,) if self.quick else (0.1, 1, 4):
            size = int(gigabytes * 1e9)
            needed = {"memory": 4 * size, "disk": 3 * size}
            free = {"memory": _memory_free(), "disk": shutil.disk_usage(self.folder).free}
            short = [what for what, n in needed.items() if free[what] < n]
            if short:
                results[f"{gigabytes:g} GB"] = {"skipped": f"too little {' and '.join(short)}"}
                continue
            folder = self.folder / f"memory-{gigabytes:g}"
            bytes_ = large.make(folder / "model", size)
            matrix = one_model(self.matrix)
            place = Place(folder / "run", matrix)
            cold = place.samebits("--jobs", "1")
            place.forget("rows", "receipts")
            host = place.samebits("--jobs", "1")
            results[f"{gigabytes:g} GB"] = {
                "bytes": bytes_,
                "probe_over_size": _ratio(cold.peak - self.tiny.peak, bytes_),
                "host_mb": round(host.peak / 1e6, 1),
                "cold": cold.rounded(),
                "file_hash": self._file_rate(folder / "model" / "model.safetensors"),
            }
            shutil.rmtree(folder)
        return results

    def warm(self) -> dict[str, Any]:
        """Check a model on environments that are in memory."""
        return warm.measure(self.folder / "warm")

    def _file_rate(self, path: Path) -> float:
        from samebits.base.hashes import hash_of_file  # noqa: PLC0415  what is measured

        started = time.perf_counter()
        hash_of_file(path)
        return path.stat().st_size / (time.perf_counter() - started)

    def _json(self, command: list[str]) -> Any:
        """Run a command and return the last line that it printed, as JSON."""
        log = self.folder / "json.log"
        log.unlink(missing_ok=True)
        run(command, log, env=os.environ | CODE)
        return json.loads(log.read_text("utf-8").splitlines()[-1])


def _ratio(value: float, unit: float) -> float:
    return round(value / unit, 3) if unit else 0.0


def _memory_free() -> int:
    lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def main() -> None:
    """Measure, write results.json, and write docs/performance.md from it."""
    parser = argparse.ArgumentParser(prog="nox -s bench --", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small matrix: two minutes")
    parser.add_argument("--steps", default="", help="some of them, separated by commas")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="put these steps into the results of the last whole run",
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="default: bench/results.json of a whole run"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder of the runs")
    options = parser.parse_args()
    (WORK / "bench").mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=WORK / "bench"))
    bench = Bench(folder, quick=options.quick)
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        name: getattr(bench, name)
        for name in (
            "stacks",
            "whole",
            "quick_level",
            "work",
            "bare",
            "by_hand",
            "rates",
            "traces",
            "memory",
            "warm",
        )
    }
    wanted = list(filter(None, options.steps.split(","))) or list(steps)
    results: dict[str, Any] = {
        "format": "samebits-bench",
        "format_version": FORMAT_VERSION,
        "quick": options.quick,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
    }
    part = options.out or WORK / "bench" / "part.json"
    try:
        for name in wanted:
            print(f"{name} …", flush=True)
            results[name] = steps[name]()
            # a step that fails leaves what the hour before it measured
            part.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(page.render(results))
    if options.publish and not options.quick:
        _publish(results, wanted)
    elif not (options.quick or options.steps or options.out):
        shutil.copyfile(part, RESULTS)
        page.main()


def _publish(results: dict[str, Any], steps: list[str]) -> None:
    """Put steps into the committed results, with the day on which they were measured."""
    published = json.loads(RESULTS.read_text("utf-8"))
    published |= {step: results[step] for step in steps}
    published["later"] = published.get("later", {}) | dict.fromkeys(steps, results["date"])
    RESULTS.write_text(json.dumps(published, indent=1) + "\n", "utf-8")
    page.main()


if __name__ == "__main__":
    main()
