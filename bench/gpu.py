"""``nox -s zoo-gpu``: the models of zoo.yaml on the GPU of this machine, beside their verdicts on the CPU.

The models run on the torch of the machine, in one variant, at ``--quick``: the float64 check makes the
verdict, and what explains it was seen on the CPU. Their verdicts are compared with those of the committed
report of the zoo. A GPU rounds differently, so a cell may change between identical and rounding. A cell that
diverges or fails on one of the two only is a contradiction, and the command exits with 1.

Options are those of ``samebits matrix``, such as ``--models 'llama*'``. Nothing is written to the docs: a
machine with a GPU is not always at hand, and docs/how-to/gpu.md says which one its figures are of.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench.known import ZOO
from bench.place import ROOT
from samebits.records.report import Report
from samebits.reports import again
from samebits.reports.packed import NAME

DEVICE = "cuda"
VARIANT = "float32-default"
QUESTIONS = ("relations", "usage", "arguments", "changes", "other_classes", "pipelines")
_GROUPS = ("tokens-", "pixels-", "sounds-", "both-", "tokenizer-", "processor-")
"""First words of the models that are there for their tokenizer or processor, which no GPU runs."""
_COMPUTES = {"identical", "rounding", "reference"}
_BEHAVES = {"diverged", "expected", "failed"}


class Pair(NamedTuple):
    """One cell's verdicts."""

    cell: str
    on_cpu: str
    on_gpu: str

    @property
    def contradicts(self) -> bool:
        """True if the numbers of one of the two are those of another function, and of the other not."""
        both = {self.on_cpu, self.on_gpu}
        return bool(both & _COMPUTES) and bool(both & _BEHAVES)


def main(options: Sequence[str]) -> int:
    """Run the zoo on the GPU and print where its verdicts differ; 0 if cells ran, and none contradicts the CPU's."""
    known = again.read(ZOO / NAME).report
    with tempfile.TemporaryDirectory(prefix="samebits-gpu-") as folder:
        matrix = ROOT / "zoo-gpu.yaml"  # its models have paths relative to the checkout
        matrix.write_text(yaml.safe_dump(adapted(ROOT / "zoo.yaml"), sort_keys=False), "utf-8")
        report = run(matrix, options, Path(folder))
    pairs = [*paired(known, report)]
    for verdicts, n in sorted(Counter((pair.on_cpu, pair.on_gpu) for pair in pairs).items()):
        print(f"{n:5} cells: {verdicts[0]} on the CPU, {verdicts[1]} on the GPU")
    contradictions = [pair for pair in pairs if pair.contradicts]
    print(f"{len(pairs)} cells, {len(contradictions)} contradictions")
    for pair in contradictions:
        print(f"  {pair.cell}: {pair.on_cpu} on the CPU, {pair.on_gpu} on the GPU")
    has_run = any(pair.on_gpu in _COMPUTES | _BEHAVES for pair in pairs)
    return int(bool(contradictions) or not has_run)


def adapted(zoo: Path) -> dict[str, Any]:
    """Return the matrix for the torch of the machine and its GPU; verdicts only."""
    matrix: dict[str, Any] = yaml.safe_load(zoo.read_text("utf-8"))
    matrix["torch"] = "system"
    del matrix["python"], matrix["expected"]
    own = {"devices": [DEVICE], "dtypes": [VARIANT.partition("-")[0]], "attention": ["default"]}
    matrix["defaults"] = own | dict.fromkeys(QUESTIONS, False)
    matrix["models"] = {
        name: {key: value for key, value in model.items() if key not in matrix["defaults"]}
        for name, model in matrix["models"].items()
        if not name.startswith(_GROUPS)
    }
    return matrix


def run(matrix: Path, options: Sequence[str], folder: Path) -> Report:
    """Run a matrix at ``--quick`` and return its report."""
    command = [sys.executable, "-m", "samebits", "matrix", "--matrix", str(matrix), "--quick"]
    command += ["--reports", str(folder), "--format", "json", *options]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if not (folder / "report.json").exists():
        sys.exit(code)  # it has printed why
    return again.read(folder / "report.json").report


def paired(known: Report, report: Report) -> Iterator[Pair]:
    """Yield the cells that both reports have."""
    on_cpu = dict(verdicts(known, VARIANT))
    for place, verdict in verdicts(report, f"{VARIANT}-{DEVICE}"):
        if place in on_cpu:
            yield Pair(" in ".join(place), on_cpu[place], verdict)


def verdicts(report: Report, variant: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield model and environment, and the verdict of its cell in a variant."""
    for row in report.rows:
        if row.variant == variant:
            for result in row.cells:
                yield (row.model, result.cell.stack), result.verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
