"""``nox -s defaults``: add releases to samebits/defaults/defaults.json, and measure the table.

Without an option, the releases of samebits/matrix/known.json that the table lacks are added, from their wheels on
PyPI: nothing is installed. ``--all`` makes the table anew. ``--measure`` makes every config, processor and token setting in
the environments of eight releases and prints how many moves of a default the table states rightly (precision), and
how many of all moves it states (recall), from each release to the next one; then how many of all stated values the
instances have. It writes them into docs/how-to/upgrading-team.md, unless it is given other releases.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import subprocess
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from bench.place import ROOT, WORK
from bench.stated import written
from bench.stated.release import Release, joined
from bench.stated.sources import BASE, CONSTANTS, Stated, kind_of, of_file, shared_constants
from samebits.defaults.moved import is_same
from samebits.defaults.table import FILE, Table, from_text
from samebits.matrix.known import releases
from samebits.stacks.build import interpreter_of
from samebits.stacks.places import stacks_folder
from samebits_wire.places import STAMP

PAGE = ROOT / "docs" / "how-to" / "upgrading-team.md"
BEGIN, END = (
    "<!-- defaults: written by nox -s defaults -- --measure -->",
    "<!-- end of defaults -->",
)
MEASURED = ("4.48.3", "4.51.3", "4.53.3", "4.57.6", "5.0.0", "5.5.4", "5.13.1", "5.24.0")
OUT = ROOT / "samebits" / "defaults" / FILE
INDEX = "https://pypi.org/pypi/transformers/json"
INSIDE = "transformers/"
NO_SETTINGS = frozenset(
    [
        "_from_model_config",
        "_name_or_path",
        "architectures",
        "feature_extractor_type",
        "id2label",
        "image_processor_type",
        "label2id",
        "model_type",
        "processor_class",
        "transformers_version",
        "video_processor_type",
    ]
)
"""Fields that say nothing of how a model computes, or only repeat others."""


def main() -> None:
    """Add the missing releases, or measure."""
    parser = argparse.ArgumentParser(prog="nox -s defaults --", description=__doc__)
    parser.add_argument("--all", action="store_true", help="read all releases, not only new ones")
    parser.add_argument(
        "--measure",
        nargs="*",
        metavar="RELEASE",
        help=f"compare with classes that are made, in these releases: {', '.join(MEASURED)}",
    )
    options = parser.parse_args()
    if options.measure is not None:
        figures = measure(from_text(OUT.read_text("utf-8")), options.measure or MEASURED)
        print(figures)
        if not options.measure:
            PAGE.write_text(with_figures(PAGE.read_text("utf-8"), figures), "utf-8")
        return
    table = Table([], {}) if options.all else from_text(OUT.read_text("utf-8"))
    missing = [release for release in releases() if release not in table.releases]
    read = Reader()
    for release, wheel in wheels(missing):
        written.add(table, release, read.wheel(wheel))
        print(f"{release}: {len(table.classes)} classes", flush=True)
    OUT.write_text(written.text(table), "utf-8")


def wheels(wanted: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield releases and their wheels, in this order."""
    if not wanted:
        return
    with urllib.request.urlopen(INDEX) as answer:
        files = json.load(answer)["releases"]
    for release in wanted:
        url = next(f["url"] for f in files[release] if f["filename"].endswith(".whl"))
        with urllib.request.urlopen(urljoin(INDEX, url)) as answer:
            yield release, answer.read()


class Reader:
    """Reads wheels; a file that two releases share is read once."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], dict[str, Stated]] = {}

    def wheel(self, content: bytes) -> dict[str, Stated]:
        """Return class -> what it states."""
        with zipfile.ZipFile(io.BytesIO(content)) as wheel:
            names = (n for n in wheel.namelist() if n.startswith(INSIDE) and n.endswith(".py"))
            return self.sources({n.removeprefix(INSIDE): wheel.read(n).decode() for n in names})

    def sources(self, texts: Mapping[str, str]) -> dict[str, Stated]:
        """Return class -> what it states, of the files of a release by their paths."""
        constants = shared_constants(*(texts[path] for path in (CONSTANTS, BASE)))
        of_classes: dict[str, Stated] = {}
        again = []
        for path, text in texts.items():
            if kind := kind_of(path):
                classes = self._file(path, text, kind, constants)
                of_classes = classes | of_classes
                if any(stated.reads_inside for stated in classes.values()):
                    again.append((text, kind))
        inside = Release(of_classes)
        for text, kind in again:
            for cls, stated in of_file(text, kind, constants, inside).items():
                if of_classes[cls].reads_inside:
                    of_classes[cls] = stated
        return joined(of_classes)

    def _file(
        self, path: str, text: str, kind: str, constants: dict[str, Any]
    ) -> dict[str, Stated]:
        digest = hashlib.sha256(f"{json.dumps(constants)}\0{text}".encode()).hexdigest()
        if (path, digest) not in self._read:
            self._read[path, digest] = of_file(text, kind, constants)
        return self._read[path, digest]


def measure(table: Table, wanted: Sequence[str]) -> str:
    """Return precision and recall of the moves that the table states, in words; print those that are wrong."""
    of_all = [*instantiated(table, wanted)]
    if lacking := set(wanted) - {release for release, _ in of_all}:
        msg = f"no environment of {', '.join(sorted(lacking))}: a run of samebits makes them"
        raise SystemExit(msg)
    made = dict(sorted(of_all, key=lambda pair: table.releases.index(pair[0])))
    counts: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for first, last in pairwise(made):
        for outcome, name in outcomes(table, first, last, made[first], made[last]):
            counts[outcome] += 1
            if outcome != "right":
                missed[f"{outcome}: {name}"] += 1
    for what, count in missed.most_common(30):
        print(f"  {count} of {what}")
    right, wrong, silent = (counts[key] for key in ("right", "wrong", "not stated"))
    return (
        f"Of {right + silent} changes from each of these releases to the next it states {right}, and of {right + wrong}\n"
        f"that it states {right} are changes of the classes: {', '.join(made)}.\n"
        "Of {1:,} values that it states of them, {0:,} are those of the classes.".format(
            *values(table, made)
        )
    )


def with_figures(text: str, figures: str) -> str:
    """Return a page with the figures between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        msg = f"the page has no {BEGIN} … {END}"
        raise ValueError(msg)
    return f"{before}{BEGIN}\n{figures}\n{END}{after}"


def instantiated(
    table: Table, wanted: Sequence[str]
) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield each wanted release that has an environment, and the defaults of its classes."""
    seen = set()
    for stamp in sorted(stacks_folder(WORK, os.environ).glob(f"*/{STAMP}")):
        python = interpreter_of(stamp.parent)
        asked = [
            str(python),
            "-c",
            "import importlib.metadata as m; print(m.version('transformers'))",
        ]
        release = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        if release in seen or release not in table.releases or release not in wanted:
            continue
        seen.add(release)
        script = [str(python), str(Path(__file__).with_name("instantiated.py"))]
        done = subprocess.run(script, check=True, capture_output=True, text=True)
        print(f"{release} read", flush=True)
        yield release, json.loads(done.stdout.splitlines()[-1])


def values(table: Table, made: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> tuple[int, int]:
    """Count the stated values that instances have, and all stated values."""
    same = [
        is_same(_in_form(default.value), _in_form(facts[field]))
        for release, classes in made.items()
        for cls, facts in classes.items()
        for field, default in table.of(cls, release).items()
        if default.is_stated and field in facts.keys() - NO_SETTINGS
        if not _is_config(facts[field])
    ]
    return sum(same), len(same)


def outcomes(
    table: Table,
    first: str,
    last: str,
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[str, str]]:
    """Yield right, wrong or not stated, and the field, for each default that moved or is said to have."""
    for cls in sorted(before.keys() & after.keys()):
        old, new = table.of(cls, first), table.of(cls, last)
        for field in sorted(before[cls].keys() & after[cls].keys() - NO_SETTINGS):
            values = _in_form(before[cls][field]), _in_form(after[cls][field])
            if any(map(_is_config, values)):
                continue
            one, other = old.get(field), new.get(field)
            said = one and other and one.is_stated and other.is_stated
            moved = said and one and other and not is_same(one.value, other.value)
            if not is_same(*values):
                yield ("right" if moved else "not stated"), f"{cls}.{field}"
            elif moved:
                yield "wrong", f"{cls}.{field}"


def _is_config(value: Any) -> bool:
    """Tell whether a value is a config inside, or a list of some: those are classes of their own."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and "model_type" in first


def _in_form(value: Any) -> Any:
    """Return a value without what 5.9 to 5.16 leave beside the dicts of kinds of layers, which no code reads."""
    if not isinstance(value, dict) or not any(isinstance(part, dict) for part in value.values()):
        return value
    return {key: part for key, part in value.items() if key not in {"rope_type", "rope_theta"}}


if __name__ == "__main__":
    main()
