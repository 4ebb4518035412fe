"""``nox -s unchanged -- REV``: proof that a change of the code changed nothing that users see.

The same models run twice, with the code of a commit and with the code of the working tree, in
empty folders that share the stacks. Both read the matrix of the commit. Every file that both runs
write is compared: report.json value by value (``bench/values.py``), the pages, capsules and locks line
by line. Lines that differ are compared again without what no run can repeat: times of day, durations,
the version; the padding of tables, which follows the longest word of a column; and the anchors of
findings, which follow their titles.

What a change did on purpose stands in three lists. Each entry has to occur, so the lists stay short:

* ``bench/reworded.txt``: ``phrase before => phrase after``;
* ``bench/added.txt``: keys that only the new report.json has;
* ``bench/renamed.txt``: ``key before => key after``.

The command exits with 1 if anything else differs. Besides a plain run it compares a cached second run, a run
in bfloat16, capsules, and two shards that were merged.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.values import Comparison, Keys
from bench.wording import Wording, lines, pairs, repeatable
from samebits.records.report import SCHEMA_VERSION
from samebits.reports.again import OLDEST_VERSION

ROOT = Path(__file__).resolve().parents[1]
REWORDED = ROOT / "bench" / "reworded.txt"
ADDED = ROOT / "bench" / "added.txt"
RENAMED = ROOT / "bench" / "renamed.txt"
MATRIX = "zoo.yaml"
MODELS = (
    "llama",
    "mamba",
    "qwen3_5",
    "bamba",
    "custom-logits-to-keep",
    "custom-strict-config",
    "custom-tokenizer-backend",
    "custom-tokenizer-llama",
    "custom-untied",
    "gpt2-scaled",
    "gpt_bigcode",
    "granitemoe",
    "llama-dynamic",
    "llava",
    "olmo3",
    "open-sci-ref-repaired-1",
    "phi3-longrope",
    "qwen2-sliding",
    "qwen2_vl",
    "recurrent_gemma",
    "t5",
    "zamba2",
)
"""Models of the zoo that between them have every verdict, signal outcome, rule of the ladder, kind of
cause, proof of a swap and family of findings that the zoo has; tests/bench/test_unchanged.py checks it."""
IN_BFLOAT16 = ("llama", "gpt2", "custom-inv-freq-dtype")
SHARDED = ("llama", "olmo3", "custom-untied")


class Run(NamedTuple):
    """One report of both sides: commands of samebits in a work folder of a group of runs."""

    report: str
    commands: tuple[tuple[str, ...], ...]
    work: str = "one"


def _matrix(models: Sequence[str], *options: str, dtypes: str = "float32") -> tuple[str, ...]:
    return ("matrix", "--models", ",".join(models), "--dtypes", dtypes, *options)


_REPORT = _matrix(MODELS, "--causes")
RUNS = (
    Run("report", (_REPORT,)),
    # the same again, from what the first run kept
    Run("cached", (_REPORT,)),
    Run("bfloat16", (_matrix(IN_BFLOAT16, dtypes="bfloat16"),)),
    # a capsule takes a minute, so one cell has one
    Run("capsules", (_matrix(["custom-cache-crop"], "--environments", "4.48,5.x", "--repro"),)),
    # in a folder of its own, as cells of the first run would answer
    Run(
        "merged",
        (
            _matrix(SHARDED, "--shard", "1/2"),
            _matrix(SHARDED, "--shard", "2/2"),
            ("merge", *_matrix(SHARDED)[1:], "shards/1-of-2", "shards/2-of-2"),
        ),
        work="sharded",
    ),
)
MAX_SHOWN = 20
"""Differences that are printed of one file."""

_LAYOUT = (
    # the padding of tables, which follows the longest word of a column
    (re.compile(r"(?<=\|) {2,}| {2,}(?=\|)"), " "),
    (re.compile(r"(?<=[|:])-{3,}(?=[|:])"), "---"),
    # the anchor of a finding, which follows its title
    (re.compile(r"(\]\([^()#]*#sb\d{3})-[^()]*\)"), r"\1)"),
    # the word at which a long text is cut
    (re.compile(r"(?<=\s)\S+…"), "…"),
)


def main(arguments: Sequence[str]) -> int:
    """Run both sides and print what differs; 0 if nothing does."""
    if len(arguments) != 1:
        print("usage: nox -s unchanged -- REV   (a commit to compare the working tree with)")
        return 2
    with tempfile.TemporaryDirectory(prefix="samebits-unchanged-") as folder:
        work = Path(folder)
        commit = _checkout(arguments[0], work / "before")
        before = _reports(commit, commit, work / "a")
        after = _reports(ROOT, commit, work / "b")
        wording, keys = Wording(pairs(REWORDED)), Keys(lines(ADDED), pairs(RENAMED))
        changes = list(differences(before, after, wording, keys))
    for change in changes:
        print(change)
    print(f"{len(changes)} differences" if changes else "nothing changed")
    return bool(changes)


def differences(before: Path, after: Path, wording: Wording, keys: Keys) -> Iterator[str]:
    """Yield one line for each difference between two folders of reports, and for each unused entry."""
    names = [_names(folder) for folder in (before, after)]
    for name in sorted(names[0] ^ names[1]):
        yield f"{name}: only {'before' if name in names[0] else 'after'}"
    for name in sorted(names[0] & names[1]):
        old, new = ((folder / name).read_bytes() for folder in (before, after))
        if old == new:
            continue
        if name.endswith(".json"):
            changes = Comparison(wording, keys).differences(_now(old), json.loads(new))
        else:
            changes = _changed_lines(_text(old), _text(new), wording)
        yield from _first(name, list(changes))
    for phrase in wording.unused():
        yield f"{REWORDED.name}: {phrase!r} occurs in no difference"
    for path in keys.unused():
        yield f"{ADDED.name} or {RENAMED.name}: {path} occurs in no difference"


def _changed_lines(old: str, new: str, wording: Wording) -> Iterator[str]:
    """Yield the lines that still differ once those that a diff shows are reworded, in words of a diff."""
    # with their ends, so that a last line that lost its own is a difference
    before, after = (text.splitlines(keepends=True) for text in (old, new))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, start, end, start_after, end_after in matcher.get_opcodes():
        if kind == "equal":
            continue
        block = [wording.reworded(line) for line in before[start:end]]
        diff = list(difflib.unified_diff(block, after[start_after:end_after], n=0))
        # its first two lines name the files
        yield from (line.rstrip("\r\n") for line in diff[2:] if not line.startswith("@@"))


def _now(text: bytes) -> Any:  # any JSON
    """Return JSON of the commit; a report.json in the form of the working tree."""
    document = json.loads(text)
    is_report = isinstance(document, dict) and "rows" in document
    if is_report and document.get("schema_version") in range(OLDEST_VERSION, SCHEMA_VERSION):
        return document | {"schema_version": SCHEMA_VERSION}
    return document


def _first(name: str, changes: list[str]) -> Iterator[str]:
    for line in changes[:MAX_SHOWN]:
        yield f"{name}: {line[:300]}"
    if len(changes) > MAX_SHOWN:
        yield f"{name}: and {len(changes) - MAX_SHOWN} more differences"


def _names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def _text(content: bytes) -> str:
    """Return a file's text without what no run repeats and without what follows the length of words."""
    text = repeatable(content.decode("utf-8", "backslashreplace"))
    for pattern, replacement in _LAYOUT:
        text = pattern.sub(replacement, text)
    return text


def _checkout(revision: str, folder: Path) -> Path:
    """Write the files of a commit into a folder."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder


def _reports(code: Path, inputs: Path, work: Path) -> Path:
    """Run the models of one checkout with the code of another and return the folder of the reports.

    Raises:
        SystemExit: a run ended without a report.

    """
    for run in RUNS:
        folder = work / run.work
        if not folder.exists():
            _prepare(folder, inputs)
        _make(run, code, folder)
        if not (work / "reports" / run.report / "report.json").exists():
            sys.exit(f"the run {run.report} of {code} left no report")
    return work / "reports"


def _prepare(work: Path, inputs: Path) -> None:
    """Make a work folder with the models of a checkout and without results."""
    work.mkdir(parents=True)
    shutil.copy(inputs / MATRIX, work)
    # the models that a matrix names by path lie in tests/
    shutil.copytree(inputs / "tests", work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("stacks", "locks"):
        (ROOT / ".samebits" / name).mkdir(parents=True, exist_ok=True)
        (work / ".samebits").mkdir(exist_ok=True)
        (work / ".samebits" / name).symlink_to(ROOT / ".samebits" / name)


def _make(run: Run, code: Path, work: Path) -> None:
    """Run the commands of one report; only the last of them writes it."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(code), str(code / "probes")))}
    for command, *arguments in run.commands:
        # relative, as pages show the path
        options = ["--matrix", MATRIX, "--reports", f"../reports/{run.report}"]
        words = [sys.executable, "-m", "samebits", command, *options, *arguments]
        subprocess.run(words, cwd=work, env=env, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
