"""Prove cases: make the artefact, observe it under two releases, and compare what a user would see.

``python -m bench.fixes.proof SHA ...`` proves some cases (all without an argument) and prints both
observations. Each release has an environment of its own, made by uv and kept.

A script is named after its commit, github.com/huggingface/transformers/commit/SHA. What its draw says of the
commit, such as the pull request and the releases around it, stands there alone.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import shutil
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from bench.fixes.draw import DRAWS, drawn
from bench.place import WORK

CASES = Path(__file__).parent / "cases"
INSIDE = Path(__file__).parent / "inside"
PART = INSIDE / "part.py"
"""Runs a part of a case inside a release."""
FOLDER = WORK / "fixes"
PACKAGES = ("pillow", "sentencepiece", "protobuf", "jinja2")
"""What each environment has besides transformers and torch."""
TORCH = "torch==2.13.*"
"""One torch for all releases. Only a case with torchvision has the newest, as the two go in pairs."""
PYTHON = "3.11"


class Case(BaseModel):
    """What a script says of itself in ``CASE``, written before samebits ran on it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    before: str
    """The last release without the fix; by default that of the draw, and so are ``after`` and ``area``."""
    after: str
    """The first one with it."""
    area: str
    symptom: str
    """What a user sees, in one line."""
    made: str = ""
    """Which of both makes the artefact; '' for ``before``."""
    options: tuple[str, ...] = ()
    """Further options without which it cannot run: ``--trust-remote-code``."""
    packages: tuple[str, ...] = ()
    """Of PyPI, besides ``PACKAGES``."""
    signals: tuple[str, ...] = ()
    """Found if one of them differs under ``after`` and fails the run."""
    findings: tuple[str, ...] = ()
    """Found and named if either release has one of them."""
    failure: str = ""
    """Found if a release fails with an exception whose type or message contains this."""
    says: tuple[str, ...] = ()
    """Regular expressions: found if a finding or a fact that differs between the releases has one."""
    source: tuple[str, ...] = ()
    """Named if what found it names one of these functions or files."""

    @property
    def maker(self) -> str:
        """Return the release that makes the artefact."""
        return self.made or self.before

    @property
    def runs(self) -> tuple[Any, ...]:
        """What a run of the case depends on, beside its script."""
        return self.before, self.after, self.maker, self.packages, self.options


def read(path: Path) -> Case:
    """Return what a script says of itself, without running it."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CASE":
            return Case.model_validate(_drawn(path.stem) | ast.literal_eval(node.value))
    raise SystemExit(f"{path} has no CASE")


def _drawn(sha: str) -> dict[str, str]:
    """Return what a draw says of a commit; {} if none has it."""
    commit = commits().get(sha)
    if commit is None:
        return {}
    return {"before": commit["before"], "after": commit["after"], "area": commit["areas"][0]}


@functools.cache
def commits() -> dict[str, dict[str, Any]]:
    """Return the commits of all draws by their shas."""
    return {each["sha"]: each for path in sorted(DRAWS.glob("*.yaml")) for each in drawn(path)}


def prove(path: Path) -> dict[str, Any]:
    """Return both observations of a case, and whether they prove it."""
    case = read(path)
    artefact = make(path, case)
    before, after = (
        observe(path, case, release, artefact) for release in (case.before, case.after)
    )
    return {"proven": is_proven(case, before, after), "before": before, "after": after}


def is_proven(case: Case, before: Any, after: Any) -> bool:
    """Return True if both observations differ; where one is an exception, it is to be the failure that the case names."""
    raised = [
        each["raised"] for each in (before, after) if isinstance(each, dict) and "raised" in each
    ]
    return before != after and (not raised or any(case.failure in text for text in raised))


def make(path: Path, case: Case) -> Path:
    """Return the folder with the artefact of a case, made anew."""
    # no word of the case stands in the name: samebits is given this folder
    artefact = FOLDER / "artefacts" / path.stem / "model"
    shutil.rmtree(artefact, ignore_errors=True)
    artefact.mkdir(parents=True)
    _python(path, case, case.maker, "make", artefact)
    return artefact


def observe(path: Path, case: Case, release: str, artefact: Path) -> Any:
    """Return what a user of a release sees of an artefact; the artefact stays as it is."""
    copy = artefact.with_name("observed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(artefact, copy)
    output = _python(path, case, release, "observe", copy)
    return json.loads(output.splitlines()[-1])


def _python(path: Path, case: Case, release: str, *words: str | Path) -> str:
    python = interpreter(release, case.packages)
    command = [str(python), str(PART), str(path), *map(str, words)]
    offline = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}
    log = FOLDER / "logs" / f"{path.stem}-{release}-{words[0]}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as errors:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
            env=os.environ | offline,
        )
    if done.returncode:
        msg = f"{path.name} {words[0]} under {release} ended with {done.returncode}: see {log}"
        raise SystemExit(msg)
    return done.stdout


def interpreter(release: str, packages: tuple[str, ...]) -> Path:
    """Return the Python of a release's environment; uv makes it where it is missing."""
    torch = "torch" if "torchvision" in packages else TORCH
    wanted = (f"transformers=={release}", torch, *PACKAGES, *packages)
    digest = blake2b(repr(wanted).encode(), digest_size=4).hexdigest()
    folder = FOLDER / "environments" / f"{release}-{digest}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        uv = shutil.which(
            "uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        )
        subprocess.run(
            [uv or "uv", "venv", "-q", "--clear", "--python", PYTHON, str(folder)], check=True
        )
        subprocess.run(
            [uv or "uv", "pip", "install", "-q", "--python", str(python), *wanted], check=True
        )
        ready.touch()
    return python


def main() -> None:
    """Prove and print."""
    chosen = sys.argv[1:] or sorted(path.stem for path in CASES.glob("*.py"))
    for name in chosen:
        path = Path(name) if name.endswith(".py") else CASES / f"{name}.py"
        print(json.dumps({"sha": path.stem} | prove(path), indent=1))


if __name__ == "__main__":
    main()
