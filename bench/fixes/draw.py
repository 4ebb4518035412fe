"""Draw fix commits of transformers at random: ``python -m bench.fixes.draw CLONE --seed N``.

The clone is one of transformers or of a fork that holds the same main. The population is a rule on the
subject and on the files of a commit, so that nobody chooses. The order of a seed is the whole draw: cases
are taken in this order, and one that is left out has its reason in the file.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).parent
DRAWS = FOLDER / "draws"
RELEASES = FOLDER / "releases.yaml"
SINCE = "4.48.0"
"""Commits after this release."""
LENGTH = 150
"""Commits of a draw; later draws leave out those that an earlier one decided."""
FIX = re.compile(
    r"\b(fix\w*|hotfix|bug\w*|regress\w*|wrong\w*|incorrect\w*|broken|breaks?|correct\w*|restor\w*|crash\w*"
    r"|mismatch\w*|silent\w*|missing)\b",
    re.IGNORECASE,
)
"""What a subject says of a fix."""
OTHER = re.compile(
    r"\b(typos?|docs?|docstrings?|documentation|readme|model ?cards?|ci|circleci|flaky|tests?|testing|tester"
    r"|expected (values?|outputs?|results?)|lint\w*|ruff|style|quality|mypy|type ?hints?|typing|annotations?"
    r"|workflows?|benchmark\w*|notebooks?|examples?|translation\w*|i18n|comments?|copyright|copies|links?"
    r"|modular converter|check_\w+)\b",
    re.IGNORECASE,
)
"""What a subject says of a change that no run can see."""
AREAS = {
    "computation": re.compile(
        r"models/.*/(modeling|modular)_(?!tf_|flax_)\w+\.py|(masking_utils|cache_utils|modeling_rope_utils"
        r"|modeling_attn_mask_utils|modeling_layers|modeling_outputs|activations|pytorch_utils)\.py"
        r"|integrations/(sdpa_attention|moe)\.py"
    ),
    "loading and saving": re.compile(
        r"(modeling_utils|core_model_loading|conversion_mapping|configuration_utils|initialization)\.py"
        r"|models/.*/configuration_\w+\.py|models/auto/\w+\.py"
    ),
    "tokenizer": re.compile(
        r"(models/.*/)?tokenization_\w+\.py|convert_slow_tokenizer\.py|models/.*/tokenization_\w+\.py"
    ),
    "processor": re.compile(
        r"(models/.*/)?(image_processing|video_processing|processing|feature_extraction)_\w+\.py"
        r"|(image_utils|image_transforms|video_utils|audio_utils|feature_extraction_\w+)\.py"
    ),
    "generation": re.compile(r"generation/\w+\.py"),
    "loss": re.compile(r"loss/\w+\.py"),
}
"""Files below src/transformers, by what they do."""
ROOT = "src/transformers/"


class Commit(NamedTuple):
    """A commit of main and the releases around it."""

    sha: str
    time: datetime
    subject: str
    files: tuple[str, ...]
    """Below src/transformers."""
    areas: tuple[str, ...]

    def record(self, releases: dict[str, datetime]) -> dict[str, Any]:
        """Return what the file of a draw says of it."""
        before, after = around(self.time, releases)
        return {
            "sha": self.sha[:10],
            "subject": self.subject,
            "date": self.time.date(),
            "areas": [*self.areas],
            "files": [*self.files][:12],
            "before": before,
            "after": after,
        }


def main() -> None:
    """Write the draw of a seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path, help="git directory of transformers, or of a fork")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--branch", default="main")
    options = parser.parse_args()
    path = DRAWS / f"{options.seed}.yaml"
    if path.exists():
        parser.error(f"{path} is drawn already")
    everything = commits(options.clone, options.branch)
    decided = {
        commit["sha"]
        for each in DRAWS.glob("*.yaml")
        for commit in drawn(each)
        if "status" in commit
    }
    population = [commit for commit in everything if commit.sha[:10] not in decided]
    order = random.Random(options.seed).sample(population, min(LENGTH, len(population)))
    record = {
        "seed": options.seed,
        "clone": _head(options.clone, options.branch),
        "population": len(population),
        "without": sorted(int(other.stem) for other in DRAWS.glob("*.yaml")),
        "order": [commit.record(releases()) for commit in order],
    }
    DRAWS.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(record, sort_keys=False, width=110, allow_unicode=True), "utf-8")


def drawn(path: Path) -> list[dict[str, Any]]:
    """Return the commits of a draw in their order."""
    order: list[dict[str, Any]] = yaml.safe_load(path.read_text("utf-8"))["order"]
    return order


def releases() -> dict[str, datetime]:
    """Return the releases of transformers, oldest version first, with the time that their line was cut.

    For a patch release that is its own time; where the first of a line was yanked, it is that one's.
    """
    known = yaml.safe_load(RELEASES.read_text("utf-8"))
    times: dict[str, datetime] = dict(known["released"])
    for version, time in known["yanked"].items():
        line = version.rpartition(".")[0]
        times[next(v for v in times if v.rpartition(".")[0] == line)] = time
    return times


def commits(clone: Path, branch: str) -> list[Commit]:
    """Return the population, sorted by sha: the clone's order of commits draws nothing."""
    log = _git(
        clone, "log", branch, "--first-parent", f"--since={releases()[SINCE].isoformat()}",
        "--name-only", "--format=%x00%H%x1f%cI%x1f%s",
    )  # fmt: skip
    return sorted(filter(None, map(_commit, log.split("\0")[1:])))


def _commit(text: str) -> Commit | None:
    """Return a commit if the rule takes it."""
    head, *names = text.strip().splitlines()
    sha, time, subject = head.split("\x1f")
    if not FIX.search(subject) or OTHER.search(subject):
        return None
    files = tuple(sorted(name.removeprefix(ROOT) for name in names if name.startswith(ROOT)))
    areas = tuple(area for area, pattern in AREAS.items() if any(map(pattern.fullmatch, files)))
    if not areas:
        return None
    return Commit(sha, datetime.fromisoformat(time).astimezone(UTC), subject, files, areas)


def around(time: datetime, known: dict[str, datetime]) -> tuple[str, str]:
    """Return the last release before the first minor release that is younger than a commit, and that one.

    A patch release can have a commit earlier: the script of a case names its releases itself.
    """
    versions = [*known]
    lines = [version.rpartition(".")[0] for version in versions]
    first = [i for i, line in enumerate(lines) if i and line != lines[i - 1]]
    after = next((i for i in first if known[versions[i]] > time), 0)
    return (versions[after - 1], versions[after]) if after else ("", "")


def _head(clone: Path, branch: str) -> dict[str, str]:
    sha, date = _git(clone, "log", "-1", "--format=%H %cs", branch).split()
    return {"head": sha, "date": date}


def _git(clone: Path, *arguments: str) -> str:
    command = ["git", f"--git-dir={clone}", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
