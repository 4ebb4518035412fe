"""A folder with a matrix of its own, on the stacks of the checkout, and what its runs took."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from bench.took import Took, run
from samebits.stacks.build import interpreter_of
from samebits.stacks.places import stacks_folder
from samebits_wire.places import STAMP

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".samebits"
CODE = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "probes")))}
"""Makes a command run the code of this folder, wherever samebits is installed."""


class Place:
    """One matrix.yaml in a folder that shares nothing with the checkout but stacks and locks.

    A folder that exists keeps what its earlier runs left.
    """

    def __init__(self, folder: Path, matrix: dict[str, Any]) -> None:
        self.folder = folder
        self.matrix = folder / "matrix.yaml"
        self.work = folder / ".samebits"
        self.log = folder / "bench.log"
        self.work.mkdir(parents=True, exist_ok=True)
        for shared in (stacks_folder(WORK, os.environ), WORK / "locks"):
            shared.mkdir(parents=True, exist_ok=True)
            link = self.work / shared.name
            if not link.is_symlink():
                link.symlink_to(shared)
        self.write(matrix)

    def write(self, matrix: dict[str, Any]) -> None:
        """Put another matrix in its place."""
        self.matrix.write_text(yaml.safe_dump(matrix, sort_keys=False, width=200), "utf-8")

    def samebits(self, *options: str, command: str = "matrix", program: str = "samebits") -> Took:
        """Run samebits on the matrix; a matrix that does not pass is no failure of the bench."""
        words = [sys.executable, "-m", program, command, "--matrix", str(self.matrix), *options]
        env = os.environ | CODE
        took = run(words, self.log, env=env, may_fail=True)
        if took.code not in {0, 1, 3}:  # 3: a cell was not finished in time
            raise SystemExit(f"samebits ended with {took.code}: see {self.log}")
        return took

    def nox(self) -> Took:
        """Run the matrix as a user does: by the nox that stands in PATH, script mode and all."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("NOX_")}
        command = [_nox(), "-f", str(ROOT / "noxfile.py"), "-s", "matrix"]
        return run([*command, "--", "--matrix", str(self.matrix)], self.log, env=env)

    def forget(self, *names: str) -> None:
        """Remove what earlier runs kept."""
        for name in names:
            shutil.rmtree(self.work / name, ignore_errors=True)

    def report(self) -> dict[str, Any]:
        """Return report.json of the last run."""
        path = self.folder / "reports" / "latest" / "report.json"
        report: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return report

    def counted(self) -> dict[str, tuple[int, float]]:
        """Return kind of call -> number and CPU seconds, as bench/counted/stack.py counted them."""
        counts: dict[str, tuple[int, float]] = {}
        for path in self.work.glob("counted/*.tsv"):
            for line in path.read_text("utf-8").splitlines():
                kind, seconds = line.split("\t")
                calls, cpu = counts.get(kind, (0, 0.0))
                counts[kind] = (calls + 1, cpu + float(seconds))
        return counts

    def stacks(self) -> dict[str, str]:
        """Return the interpreter of every stack that the last run used, oldest first."""
        wanted = {stack["lock_digest"]: stack["id"] for stack in self.report()["stacks"]}
        digests = {
            path.parent: json.loads(path.read_text("utf-8"))["lock_digest"]
            for path in (self.work / "stacks").resolve().glob(f"*/{STAMP}")
        }
        interpreters = {
            wanted[digest]: str(interpreter_of(folder))
            for folder, digest in digests.items()
            if digest in wanted
        }
        return {id: interpreters[id] for id in wanted.values()}

    def bare_jobs(self, stack: str, folder: Path | None = None) -> Iterator[dict[str, Any]]:
        """Yield what one stack ran without failing, as bare.py takes it.

        ``folder`` has the checkpoint; default: where the run made it.
        """
        for path in sorted(self.work.glob(f"captures/*/*/{stack}/*/a.json")):
            capture = json.loads(path.read_text("utf-8"))
            if capture["status"] == "complete" and capture["signals"].get("forward"):
                yield self._bare_job(capture, folder)

    def _bare_job(self, capture: dict[str, Any], folder: Path | None) -> dict[str, Any]:
        cell, signals = capture["cell"], capture["signals"]
        greedy = signals.get("greedy") or {}
        return {
            "name": f"{cell['model']}-{cell['variant']['dtype']}",
            "folder": str(folder or self._made(cell["model"])),
            "class": signals["load"]["model_class"],
            "dtype": cell["variant"]["dtype"],
            "greedy": max((len(facts["ids"]) for facts in greedy.values()), default=0),
            "decoded": sorted({row.partition("[")[0] for row in greedy}),
            "prompts": {
                prompt: {name: self._stored(ref) for name, ref in facts["inputs"].items()}
                for prompt, facts in signals["forward"].items()
            },
        }

    def _made(self, model: str) -> Path:
        """Return the checkpoint that a run made of a model."""
        folders = (self.work / "checkpoints").iterdir()
        pattern = rf"{re.escape(model)}-[0-9a-f]{{12}}"
        (folder,) = (path for path in folders if re.fullmatch(pattern, path.name))
        return folder

    def _stored(self, ref: dict[str, Any]) -> dict[str, Any]:
        path = self.work / "tensors" / ref["hash"][:2] / f"{ref['hash']}.bin"
        return {"dtype": ref["dtype"], "shape": ref["shape"], "path": str(path)}


def zoo_cut(n_models: int, dtypes: Sequence[str], n_stacks: int) -> dict[str, Any]:
    """Return the zoo, cut down to made models, dtypes and stacks (oldest and newest)."""
    matrix: dict[str, Any] = yaml.safe_load((ROOT / "zoo.yaml").read_text("utf-8"))
    models = {n: m for n, m in matrix["models"].items() if "build" in m and "path" not in m}
    names = list(models)[:: max(1, len(models) // n_models)][:n_models]
    chosen = {name: models[name] | {"dtypes": list(dtypes)} for name in names}
    stacks = matrix["environments"]
    cut = matrix | {
        "models": chosen,
        "environments": [stacks[0], *stacks[len(stacks) - n_stacks + 1 :]],
    }
    ids = [stack if isinstance(stack, str) else stack["id"] for stack in cut["environments"]]
    entries = matrix.get("expected", [])
    attention = {"default", *(a for model in chosen.values() for a in model.get("attention", ()))}
    names_of = {
        "model": list(names),
        "environment": ids,
        "variant": [f"{dtype}-{name}" for dtype in dtypes for name in attention],
    }
    cut["expected"] = [part for entry in entries if (part := _cut(entry, names_of))]
    for rules in ("include", "exclude"):
        cut.pop(rules, None)
    return cut


def one_model(matrix: dict[str, Any]) -> dict[str, Any]:
    """Return a matrix of the model in ``../model`` for the oldest and the newest environment of a matrix."""
    environments = matrix["environments"]
    return {key: matrix[key] for key in ("version", "torch", "python") if key in matrix} | {
        "environments": [environments[0], environments[-1]],
        "defaults": {"timeout": 3600, "greedy": 2, "relations": False},
        "models": {"large": {"path": "../model", "save_load": False, "dtypes": ["float32"]}},
    }


def _cut(entry: dict[str, Any], names_of: dict[str, list[str]]) -> dict[str, Any] | None:
    """Return an expected entry without the models, stacks and variants that the cut leaves out."""
    cut = dict(entry)
    for key in names_of.keys() & entry.keys():
        patterns = [str(p) for p in (entry[key] if isinstance(entry[key], list) else [entry[key]])]
        cut[key] = [p for p in patterns if any(fnmatchcase(name, p) for name in names_of[key])]
        if not cut[key]:
            return None
    return cut


def _nox() -> str:
    """Return the nox of PATH that is not the one of nox's own script environment."""
    own = str(Path(sys.executable).parent)
    others = os.pathsep.join(p for p in os.environ.get("PATH", "").split(os.pathsep) if p != own)
    nox = shutil.which("nox", path=others) or shutil.which("nox", path=own)
    if nox is None:
        raise SystemExit("there is no nox: pip install nox")
    return nox
