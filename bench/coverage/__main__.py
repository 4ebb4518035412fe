"""``nox -s coverage``: make and run a tiny model of each type in some releases; writes docs/coverage.md.

What is done is kept in .samebits/coverage, so that a run that was stopped, or is given less time, goes on where it
ended. Types are done in a seeded random order: those that are done are a sample of all.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.coverage import page
from bench.place import ROOT, WORK, Place
from bench.tiny import PACKAGES, matrix

RELEASES = "4.48.3,4.57.6,5.24.0"
INSIDE = Path(__file__).with_name("inside.py")
SEED = 33


def main() -> None:
    """Measure as far as the time allows, and write the page."""
    parser = argparse.ArgumentParser(prog="nox -s coverage --", description=__doc__)
    parser.add_argument("--releases", default=RELEASES, help=f"default: {RELEASES}")
    parser.add_argument("--types", type=int, default=None, help="only so many, drawn at random")
    parser.add_argument("--seconds", type=float, default=36_000.0, help="of each part in a release")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=WORK / "coverage")
    options = parser.parse_args()
    releases = options.releases.split(",")
    interpreters = stacks(releases, options.folder)
    known = {release: architectures(interpreters[release]) for release in releases}
    order = sorted({name for names in known.values() for name in names})
    random.Random(SEED).shuffle(order)
    order = order[: options.types]
    measure(order, known, interpreters, options)
    done = {release: [*lines(options.folder, release)] for release in releases}
    page.write(page.facts(known, done, PACKAGES))


def measure(
    order: list[str], known: dict[str, list[str]], interpreters: dict[str, str], options: Any
) -> None:
    """Make each type by the oldest release that can, and run it in all that know it."""
    options.folder.mkdir(parents=True, exist_ok=True)
    made: set[str] = set()
    for kind in ("make", "run"):
        for release, python in interpreters.items():
            wanted = [n for n in order if n in known[release] and (n in made) == (kind == "run")]
            done = {line["type"] for line in lines(options.folder, release) if line["kind"] == kind}
            ask(python, kind, [name for name in wanted if name not in done], release, options)
            made |= {line["type"] for line in lines(options.folder, release) if is_made(line)}


def stacks(releases: list[str], folder: Path) -> dict[str, str]:
    """Return the interpreter of each release; environments are built by a run of one tiny model."""
    place = Place(folder / "place", matrix(["llama"], releases))
    place.samebits("--quick")
    return place.stacks()


def architectures(python: str) -> list[str]:
    """Return the types that a release knows."""
    script = ROOT / "probes" / "architectures.py"
    found = subprocess.run([python, script], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(found.stdout)["architectures"]
    return names


def ask(python: str, kind: str, names: list[str], release: str, options: Any) -> None:
    """Make or run types in one release, in some processes."""
    running = []
    for number in range(options.processes):
        job = {
            "probes": str(ROOT / "probes"),
            "folder": str(options.folder / "made"),
            "kind": kind,
            "types": names[number :: options.processes],
            "seconds": options.seconds,
            "out": str(out(options.folder, release, number)),
        }
        path = options.folder / f"{release}-{number}.job.json"
        path.write_text(json.dumps(job), "utf-8")
        running.append(subprocess.Popen([python, str(INSIDE), str(path)]))
    for process in running:
        process.wait()


def out(folder: Path, release: str, number: int) -> Path:
    """Return the file with what a process did."""
    return folder / f"{release}-{number}.jsonl"


def lines(folder: Path, release: str) -> Iterable[dict[str, Any]]:
    """Yield what was done in a release."""
    for path in sorted(folder.glob(f"{release}-*.jsonl")):
        yield from map(json.loads, path.read_text("utf-8").splitlines())


def is_made(line: dict[str, Any]) -> bool:
    """Return True for the line of a checkpoint that was made."""
    return line["kind"] == "make" and not line["why"]


if __name__ == "__main__":
    main()
