"""``nox -s unchanged -- REV``: proof that a change of the code changed nothing that users see.

The same models run twice, with the code of a commit and with the code of the working tree, in two
empty folders that share the stacks. Every file that both runs write is compared byte for byte: report.md,
the pages, report.json, capsules, locks. Only what no run can repeat is replaced first: times of day,
durations, the version; and the padding of tables, which follows the longest word of a column. Words
that were changed on purpose are listed in ``bench/reworded.txt``, one pair a line,
``before => after``; a pair that replaces nothing is an error, so the list stays short.

The command exits with 1 if a file differs. It takes about as long as two runs of 20 models.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
REWORDED = ROOT / "bench" / "reworded.txt"
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
    "olmo3",
    "open-sci-ref-repaired-1",
    "phi3-longrope",
    "qwen2-sliding",
    "recurrent_gemma",
    "t5",
    "zamba2",
)
"""Models of the zoo that between them have every verdict, signal outcome, rule of the ladder, kind of
cause, proof of a swap and family of findings that the zoo has; tests/bench/test_unchanged.py checks it."""
RUNS = {
    "report": ("--models", ",".join(MODELS), "--causes"),
    "capsules": ("--models", "custom-cache-crop", "--stacks", "4.48,5.x", "--repro"),
}
"""Options of each run, by the folder of its report; a capsule takes a minute, so one cell has one."""
OPTIONS = ("--dtypes", "float32")
MAX_SHOWN = 20
"""Differing lines that are printed of one file."""

_VOLATILE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r'"seconds": ?(?:\[[\d., ]*\]|[\d.]+)'), r'"seconds":0'),
    (
        re.compile(r"\b\d+(?:\.\d+)? s\b|\b\d+ min(?: \d+ s)?\b|\b\d+ h(?: \d+ min)?\b"),
        "<duration>",
    ),
    # a page holds durations
    (re.compile(r'(?m)^(  "[^"]+\.md": )"[0-9a-f]{64}"'), r'\1"<digest>"'),
    (re.compile(r'"(samebits|matrix_digest)": ?"[^"]*"'), r'"\1":"<version>"'),
    # the padding of tables, which follows the longest word of a column
    (re.compile(r"(?<=\|) {2,}| {2,}(?=\|)"), " "),
    (re.compile(r"(?<=[|:])-{3,}(?=[|:])"), "---"),
)
_SPENT = re.compile(r'"spent": \[.*?\]', re.DOTALL)


class Pair(NamedTuple):
    """A phrase that a change reworded on purpose."""

    before: str
    after: str


def main(arguments: Sequence[str]) -> int:
    """Run both sides and print what differs; 0 if nothing does."""
    if len(arguments) != 1:
        print("usage: nox -s unchanged -- REV   (a commit to compare the working tree with)")
        return 2
    with tempfile.TemporaryDirectory(prefix="samebits-unchanged-") as folder:
        work = Path(folder)
        before = _reports(_checkout(arguments[0], work / "before"), work / "a")
        after = _reports(ROOT, work / "b")
        lines = list(differences(before, after, pairs(REWORDED)))
    for line in lines:
        print(line)
    print(f"{len(lines)} differences" if lines else "nothing changed")
    return bool(lines)


def pairs(path: Path) -> list[Pair]:
    """Return the reworded phrases of a file; an empty line or one that begins with # is none."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [
        Pair(*line.split(" => ", 1)) for line in lines if line.strip() and not line.startswith("#")
    ]


def differences(before: Path, after: Path, reworded: Iterable[Pair] = ()) -> Iterator[str]:
    """Yield one line for each difference between two folders of reports, in words of a diff."""
    reworded = list(reworded)
    unused = set(reworded)
    names = [_names(folder) for folder in (before, after)]
    for name in sorted(names[0] ^ names[1]):
        yield f"{name}: only {'before' if name in names[0] else 'after'}"
    for name in sorted(names[0] & names[1]):
        old, new = (_stable((folder / name).read_bytes()) for folder in (before, after))
        for pair in reworded:
            if pair.before in old:
                unused.discard(pair)
                old = old.replace(pair.before, pair.after)
        if old != new:
            yield from _changed_lines(name, old, new)
    for pair in sorted(unused):
        yield f"{REWORDED.name}: {pair.before!r} is in no file of the report before the change"


def _changed_lines(name: str, old: str, new: str) -> Iterator[str]:
    # with their ends, so that a last line that lost its own is a difference
    before, after = (text.splitlines(keepends=True) for text in (old, new))
    _, _, *diff = difflib.unified_diff(before, after, n=0)  # its first two lines name the files
    lines = [line.rstrip("\r\n") for line in diff if not line.startswith("@@")]
    for line in lines[:MAX_SHOWN]:
        yield f"{name}: {line[:300]}"
    if len(lines) > MAX_SHOWN:
        yield f"{name}: and {len(lines) - MAX_SHOWN} more lines"


def _names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def _stable(content: bytes) -> str:
    """Return a file's text without what no run can repeat."""
    text = content.decode("utf-8", "backslashreplace")
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return _SPENT.sub(_kinds, text)


def _kinds(spent: re.Match[str]) -> str:
    """Return the kinds of jobs of a report's costs, by name; the report sorts them by CPU seconds."""
    kinds = sorted(re.findall(r'"kind": ?"([^"]*)"', spent[0]))
    return f'"spent": {kinds}'


def _checkout(revision: str, folder: Path) -> Path:
    """Write the files of a commit into a folder."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder


def _reports(code: Path, work: Path) -> Path:
    """Run the models with the code of one checkout and return the folder of its reports.

    Raises:
        SystemExit: a run ended without a report.

    """
    work.mkdir()
    shutil.copy(ROOT / MATRIX, work)
    # the models that a matrix names by path lie in tests/
    shutil.copytree(ROOT / "tests", work / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    kept = work / ".samebits"
    kept.mkdir()
    for name in ("stacks", "locks"):
        (ROOT / ".samebits" / name).mkdir(parents=True, exist_ok=True)
        (kept / name).symlink_to(ROOT / ".samebits" / name)
    for name, options in RUNS.items():
        command = [sys.executable, "-m", "samebits", "matrix", "--matrix", MATRIX, *OPTIONS]
        command += ["--reports", f"reports/{name}", *options]
        env = os.environ | {"PYTHONPATH": str(code)}
        subprocess.run(command, cwd=work, env=env, check=False)
        if not (work / "reports" / name / "report.json").exists():
            sys.exit(f"the run {name} of {code} left no report")
    return work / "reports"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
