"""The part of docs/recall.md about cases drawn at random, from what ``nox -s fixes`` measured last."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tabulate import tabulate

from bench.fixes.draw import DRAWS

RESULTS = Path(__file__).parent / "results.json"
COMMITS = "https://github.com/huggingface/transformers/commit"
KEYS = ("found", "named", "listed", "silent")
_Z = 1.959964
"""Quantile of the normal distribution for 95 %."""
_OPENED = {4: (16,), 5: (23, 36, 53, 62), 6: (29, 44)}
"""Draw -> how many proven cases it had at the end of each opening; each was built on before the next.

What is proven behind the last of them is the rest of the draw.
"""
_RAN_AGAIN = {1: 1, 2: 1, 3: 1, 4: 1}
"""Draw -> how many of its parts have figures of a run after checks were built on their misses."""
_LENGTH = 160
"""Characters of a cell."""

HEAD = """\
## Cases drawn at random

Written by `nox -s fixes` from `bench/fixes/`. The cases above are regressions that somebody reported. These are
drawn at random from the fix commits of transformers since 4.48, by a rule on subject and files
([bench/fixes/draw.py](../bench/fixes/draw.py)). The drawn order is the draw: each commit up to the last decided
one is either *proven*, or skipped with a reason. A script of transformers and torch alone proves a case: on a
tiny checkpoint, its output differs between the last release without the fix and the first one with it. What
counts as found was written down before samebits ran. Then `samebits check FOLDER --from BEFORE --to AFTER` gets
the folder and no hint (level *default*). Level *all* is a matrix with every question switched on, `--deep` and
`--causes`.

Each draw is run once before anything is built on its misses, and estimates what a check finds. Checks were built on
the misses of draw 1 (8 of 16 found when it was opened), later on those of draw 2 (10 of 15 when it was opened) and
of draw 3 (8 of 19 when it was opened) and of the first 16 cases of draw 4 (6 of 16 when they were opened). The rest of
draw 4 and draw 5 were opened later, draw 5 in five parts. Their figures are those of that run, and checks were built on
their misses since. Draw 6 was opened in three parts. One text is built on the first part; on the misses of the second
one are built: a processor that the older release cannot load, an assistant of another tokenizer, texts with shifts, a
batch decoded with the switches of its class, and the first tokens of a decoder behind pads. On two misses of its rest are
built the names by which users reach into a model, and how much of a text a cache keeps for cross attention. Three of its fixes
(4db1cacb74, 1975be4d97, 87be559508) were cases of the list above before. Draw 7 is of a clone that ends on 2026-04-13.
On its misses are built the fields of a part that a config answers itself, an image of the processor's own size
in the counts of patches, and words with boxes, paths or entities for tokenizers that take them. Draw 8 is of the fixes of
the same clone that no earlier draw had decided, and was opened after it; 8757098be4 was a case of the list above before. On
its misses are built parts that the caller gives to from_pretrained of a processor, and two videos of different speeds in one
text. Draw 9 is of a clone that ends on 2026-08-19. On its misses are built stop_strings behind tokens that are
no words, the heads and sizes in a cache, chunks of a prompt with a cache of the caller, and texts of a processor that name an
image or a sound that they come without. Draw 10 is of the same clone, of the fixes that no earlier draw had decided, and was
opened last. On its misses are built a text with the token of pads inside for classifiers, the kind of a processor's tokenizer, a
model with its tensors offloaded, and a message of a processor that only calls a tool. The figures of cases whose misses were built on
earlier show what is kept. Where fewer cases ran than are proven, the run of the draw ended with its time: they are the first ones of the drawn order, none in
between is left out, and nothing is built on the rest.

- *found*: a verdict that fails the run, a finding or a fact of the report shows the difference.
- *named*: besides, what shows it has the right finding, function or file.
- *listed*: the changed code is among the first ten definitions that the page lists as not run.
- *silent*: neither found nor listed.

Shares have their 95 % interval (Wilson) in brackets."""


def read() -> dict[str, Any] | None:
    """Return the results; None before the first run."""
    if not RESULTS.exists():
        return None
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    return results


def section(results: dict[str, Any]) -> list[str]:
    """Return the blocks of the page."""
    levels = levels_of(results)
    parts = [HEAD, f"Measured {results['date']} on {results['machine']['cores']} cores."]
    parts.append(table(["level", "draw", "proven", "ran", *KEYS], _figures(results)))
    for level in levels:
        cases = ran(results, level)
        header = ["commit", "releases", "found", "named", "listed", "shown", "by"]
        parts += [f"### Level {level}", table(header, [_case(case, level) for case in cases])]
        if missed := [case for case in cases if not case["levels"][level]["found"]]:
            parts += ["Not found:", "\n".join(_missed(case, level) for case in missed)]
    return [*parts, "### Skipped commits", *map(_skipped, draws_of(results))]


def sentence(results: dict[str, Any]) -> str:
    """Return the figures of all first runs at the default level, for README.md; '' if nothing ran."""
    cases = list(_of_first_runs(ran(results, "default")))
    if not cases:
        return ""
    figures = counts(cases, "default")
    low, high = interval(figures["found"], len(cases))
    listed = len(cases) - figures["found"] - figures["silent"]
    return (
        f"Of {len(cases)} fixes drawn at random from its history, on which no check was built before, a plain `samebits check`\n"
        f"found {figures['found']} (95 % interval {low:.0%} to {high:.0%}) and named the cause of {figures['named']}. Of {listed} more it "
        f"listed the\nchanged code as not run; on {figures['silent']} it was silent."
    )


def _of_first_runs(cases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the cases whose figures are those of the run before any check was built on their part of a draw."""
    for draw in sorted({case["draw"] for case in cases}):
        parts = _parts([case for case in cases if case["draw"] == draw], draw)
        for *_, of_part in parts[_RAN_AGAIN.get(draw, 0) :]:
            yield from of_part


def levels_of(results: dict[str, Any]) -> list[str]:
    """Return the levels at which a case ran."""
    return [*dict.fromkeys(level for case in results["cases"] for level in case["levels"])]


def draws_of(results: dict[str, Any]) -> list[int]:
    """Return the draws of the cases."""
    return sorted({case["draw"] for case in results["cases"]})


def ran(results: dict[str, Any], level: str) -> list[dict[str, Any]]:
    """Return the cases that ran at a level."""
    return [case for case in results["cases"] if level in case["levels"]]


def counts(cases: list[dict[str, Any]], level: str) -> dict[str, int]:
    """Return in how many cases a level finds, names, lists, and shows nothing."""
    return {key: sum(case["levels"][level][key] for case in cases) for key in KEYS}


def interval(hits: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson, 1927)."""
    share = hits / n
    middle = share + _Z**2 / (2 * n)
    half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return max(0.0, (middle - half) / (1 + _Z**2 / n)), min(1.0, (middle + half) / (1 + _Z**2 / n))


def _figures(results: dict[str, Any]) -> list[list[Any]]:
    rows = []
    for level in levels_of(results):
        for draw in draws_of(results):
            of_draw = [case for case in ran(results, level) if case["draw"] == draw]
            for name, n_proven, cases in _parts(of_draw, draw):
                shares = [_share(count, len(cases)) for count in counts(cases, level).values()]
                rows.append([level, name, n_proven, len(cases), *shares])
    return rows


def _parts(cases: list[dict[str, Any]], draw: int) -> list[tuple[str, int, list[dict[str, Any]]]]:
    """Return name, number of proven cases, and cases that ran, of each part of a draw that was opened at once."""
    proven = [commit.get("sha") for commit in decided(draw) if commit["status"] == "proven"]
    opened = _OPENED.get(draw, ())
    ends = sorted({*opened, len(proven)})
    parts = []
    for start, end in zip((0, *ends), ends, strict=False):
        n = end - start
        name = f"the {'next' if start else 'first'} {n}" if end in opened else "the rest"
        of_part = [case for case in cases if case["sha"] in proven[start:end]]
        parts.append((f"{draw}, {name}", n, of_part))
    begun = [part for part in parts if part[-1]]
    return begun if len(begun) > 1 else [(str(draw), len(proven), cases)]


def decided(draw: int) -> list[dict[str, Any]]:
    """Return the commits of a draw that are proven or skipped."""
    order = yaml.safe_load((DRAWS / f"{draw}.yaml").read_text("utf-8"))["order"]
    return [commit for commit in order if "status" in commit]


def _share(count: int, n: int) -> str:
    if not n:
        return "-"
    low, high = interval(count, n)
    return f"{count} ({low:.0%} to {high:.0%})"


def _case(case: dict[str, Any], level: str) -> list[str]:
    shown = case["levels"][level]
    marks = ["yes" if shown[key] else "**no**" for key in ("found", "named")]
    listed = "yes" if shown["listed"] else "no"
    name = f"{_link(case)}: {case['symptom']}"
    releases = f"{case['before']} → {case['after']}"
    return [name, releases, *marks, listed, _cell(shown["shown"]), _cell(shown["because"])]


def _missed(case: dict[str, Any], level: str) -> str:
    shown = case["levels"][level]
    why = shown.get("why") or "not read yet"
    return f"- {_link(case)} ({'silent' if shown['silent'] else 'listed'}): {why}"


def _link(case: dict[str, Any]) -> str:
    return f"[{case['sha']}]({COMMITS}/{case['sha']})"


def _cell(text: str) -> str:
    """Return a text for a cell of a table."""
    short = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
    return short if len(short) <= _LENGTH else f"{short[: _LENGTH - 1]}…"


def _skipped(draw: int) -> str:
    commits = decided(draw)
    reasons = Counter(
        commit["reason"].partition(":")[0] for commit in commits if commit["status"] == "skipped"
    )
    listed = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    return (
        f"Draw {draw}: {reasons.total()} of the first {len(commits)} commits are skipped: {listed}. "
        f"[bench/fixes/draws/{draw}.yaml](../bench/fixes/draws/{draw}.yaml) has each with its reason."
    )


def table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a table of GitHub's Markdown."""
    return tabulate(rows, header, tablefmt="github", disable_numparse=True)
