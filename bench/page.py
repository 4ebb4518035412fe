"""docs/performance.md: the method, the targets, and what ``nox -s bench`` measured last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bench import questions

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "docs" / "performance.md"
RESULTS = Path(__file__).parent / "results.json"
REAL_SIZE = Path(__file__).parent / "real_size.json"
LEVELS = Path(__file__).parent / "levels.json"
TIMES = "\N{MULTIPLICATION SIGN}"
QUICK_AIM, DEFAULT_AIM = 0.1, 0.3
"""Aims for the CPU time of the whole matrix as a share of *by hand*, by level."""

HEAD = """\
# Performance

Written by `nox -s bench` from `bench/results.json`; do not edit. `nox -s bench -- --quick` measures
a small matrix in two minutes and writes nothing here.

## Method

Everything is measured in one run on one machine, so the figures to compare are ratios. CPU seconds are
those of all processes together, because they do not depend on what else the machine does; wall
seconds stand beside them. uv's installation of the environments is left out: every comparison needs it.

- *needed*: the same imports, loads, forwards, backward passes, runs of Trainer, generate() and saves that samebits asks of transformers,
  in one bare process per environment. They are timed from outside while samebits runs a quarter of the
  matrix once more (`bench/counted/`). A call that an instrument watches counts with what it takes
  unwatched, found by another run that tries it so in a fork, and a float64 model that cannot run
  without the instrument counts as nothing. What is above it is samebits' own.
- *bare*: the same models, dtypes and prompts (the very tensors), loaded, run and decoded **once**, in
  one process per environment that does nothing else (`bench/bare.py`). samebits does it twice, to see
  whether a cell is deterministic, and more often for each further check.
- *by hand*: one such process per model, dtype and environment, which dumps logits and hidden states, and one
  more to compare two dumps (`bench/by_hand.py`); a sample of models, scaled to all of them.
- *check --quick --warm*: the fastest of five checks of a Llama of 17 MB on 4.57 and 5.24, whose processes an
  earlier check left in memory; *changed* is another value in its weights before each check (`bench/warm.py`).
- *whole matrix*: samebits with 40 models of zoo.yaml and an empty folder of work: makes the checkpoints, runs every cell twice
  with all probes, saves and loads each model across the environments, runs the float64 check for what
  differs, compares and writes the report. Relations inside a cell (`relations`) are tried for
  those models for which zoo.yaml has `relations: true`, and cost more than any other check.
  docs/levels.md says what `--quick` leaves out and what is lost with it.
"""


def render(
    results: dict[str, Any],
    real_size: dict[str, Any] | None = None,
    levels: dict[str, Any] | None = None,
) -> str:
    """Return the document; steps that were not run are left out."""
    parts = [HEAD.strip(), _machine(results)]
    if targets := _targets(results):
        parts += ["## Targets", _table(["target", "measured", "met"], targets)]
    if whole := results.get("whole"):
        parts += ["## The whole matrix", *_whole(whole, results)]
    if rates := results.get("rates"):
        parts += ["## Hashing and comparing", *_rates(rates)]
    if memory := results.get("memory"):
        parts += ["## Memory and large checkpoints", *_memory(memory)]
    if traces := results.get("traces"):
        parts += ["## Traces", *_traces(traces)]
    if real_size:
        parts += ["## Models of real size", *_real_size(real_size)]
    if levels:
        parts += ["## What a deeper level adds", *_levels(levels)]
    return "\n\n".join(parts) + "\n"


def _machine(results: dict[str, Any]) -> str:
    machine = results["machine"]
    busy = f", load {machine['load']:.1f} at the start" if machine["load"] >= 0.5 else ""
    quick = " With `--quick`." if results["quick"] else ""
    later = ", ".join(f"{step} on {date}" for step, date in results.get("later", {}).items())
    later = f" Measured anew since: {later}." if later else ""
    return f"Measured {results['date']} on {machine['cores']} cores of {machine['cpu']}{busy}.{quick}{later}"


def _questions(whole: dict[str, Any], hand: dict[str, Any]) -> list[str]:
    """Return what the parts of the default level cost, the most expensive first."""
    lines = [
        [
            question.name,
            f"{cost:.1f}",
            f"{cost / hand['cpu']:.2f}",
            question.without,
            question.loses,
        ]
        for question, cost in questions.costs(whole)
    ]
    text = (
        "What the questions of the default level cost, what leaves one out, and what a run without it "
        "cannot say. A question inside the cells is measured by the clock, a job by its CPU time."
    )
    headers = ["question", "s", f"{TIMES} by hand", "left out with", "then nothing says"]
    return [text, _table(headers, lines)] if lines else []


def _targets(results: dict[str, Any]) -> list[list[str]]:
    rows = []
    whole, work, hand = (results.get(step) for step in ("whole", "work", "by_hand"))
    if work:
        wanted = f"all probes ≤ 1.5 {TIMES} needed"
        rows.append([wanted, f"{work['times']:.2f} {TIMES}", _met(work["times"] <= 1.5)])
    if whole and hand:
        aims = ((QUICK_AIM, "quick_level", "`--quick`"), (DEFAULT_AIM, "whole", "default"))
        for aim, step, level in aims:
            if step not in results:
                continue
            took = results[step] if step == "quick_level" else whole["cold"]
            times = took["cpu"] / hand["cpu"]
            wanted = f"whole matrix, {level} ({_extent(whole)}) ≤ {aim:g} of by hand"
            rows.append([wanted, f"{times:.2f} {TIMES}", _met(times <= aim)])
    if whole:
        wall = whole["unchanged, by nox"]["wall"]
        rows.append(["unchanged re-run ≤ 2 s, nox included", f"{wall:.2f} s", _met(wall <= 2)])
        more = whole["one model added"]["wall"] - whole["that model alone"]["wall"]
        rows.append(
            ["a model added: its own cost + 10 s at most", f"{more:+.1f} s", _met(more <= 10)]
        )
    for state, aim in (("changed", 3), ("unchanged", 0.5)):
        if "warm" in results:
            wall = results["warm"][state]["wall"]
            wanted = f"`check --quick --warm` of a tiny {state} model ≤ {aim:g} s"
            rows.append([wanted, f"{wall:.2f} s", _met(wall <= aim)])
    for name, rates in (results.get("rates") or {}).items():
        if "hash" in rates:
            rate = rates["hash"] / 1e9
            rows.append(
                [f"weights hashed at ≥ 1 GB/s ({name})", f"{rate:.2f} GB/s", _met(rate >= 1)]
            )
            rows.append(["… and never copied", _copied(rates), _met(not rates["copied"])])
        if "grown_mb" in rates:
            what = f"two tensors of {rates['megabytes']} MB compared in < 200 MB (host)"
            rows.append([what, f"{rates['grown_mb']} MB", _met(rates["grown_mb"] < 200)])
    for size, run in (results.get("memory") or {}).items():
        if "host_mb" in run:
            host = run["host_mb"]
            rows.append([f"host < 400 MB ({size})", f"{host:.0f} MB", _met(host < 400)])
    return rows


def _extent(whole: dict[str, Any]) -> str:
    return (
        f"{whole['models']} models {TIMES} {whole['stacks']} environments, {whole['cells']} cells"
    )


def _met(met: bool) -> str:
    return "yes" if met else "**no**"


def _copied(rates: dict[str, Any]) -> str:
    return "copied" if rates["copied"] else "no copy"


def _whole(whole: dict[str, Any], results: dict[str, Any]) -> list[str]:
    names = ["cold", "compared again", "unchanged, by nox", "one model added", "that model alone"]
    lines = [
        [name, f"{took['wall']:.1f}", f"{took['cpu']:.1f}", f"{took['peak_mb']:.0f}"]
        for name in names
        for took in [whole[name]]
    ]
    labels = {"quick_level": "cold, `--quick`", "bare": "bare, once", "by_hand": "by hand, scaled"}
    for name, label in labels.items():
        if took := results.get(name):
            peak = f"{took['peak_mb']:.0f}" if "peak_mb" in took else ""
            lines.append([label, f"{took['wall']:.1f}", f"{took['cpu']:.1f}", peak])
    phases = sum(whole["phases"].values())
    shares = ", ".join(f"{n} {s / phases:.0%}" for n, s in whole["phases"].items() if s > 0)
    return [
        _table(["", "wall s", "CPU s", "largest process, MB"], lines, right=3),
        *_against(results),
        *_spent(whole["spent"], whole["cold"]["cpu"]),
        *(_questions(whole, results["by_hand"]) if "by_hand" in results else ()),
        *(_work(results["work"]) if "work" in results else ()),
        f"Where the cells of the cold run spend their time, both runs together: {shares}.",
        f"report.json has {whole['report_json_mb']} MB, report.md {whole['report_md_kb']:.0f} KB.",
    ]


def _against(results: dict[str, Any]) -> list[str]:
    """Return a paragraph on the ratios to *bare* and *by hand*."""
    work, bare, hand = (results.get(step) for step in ("work", "bare", "by_hand"))
    if not (work and bare and hand):
        return []
    needed = hand["times"] / work["times"]
    text = (
        "*bare* and *by hand* run one process after the other and ask for one forward and one decode "
        f"of each model. samebits takes {bare['times']:.1f} {TIMES} the CPU of *bare*, and what it asks "
        f"of transformers, without anything of its own, is {needed:.2f} {TIMES} *by hand*. An aim below "
        "that can only be met by asking less."
    )
    return [text]


_JOBS = {
    "ladder": "float64 check",
    "crossings.save": "save",
    "crossings.load": "load elsewhere",
    "training.step": "training",
    "training.trace": "training trace",
    "training.graft": "training swap test",
    "trainer.run": "Trainer",
}
"""Kind of job in a record -> its name on the page, where it is another one."""


def _job(kind: str) -> str:
    return _JOBS.get(kind, kind)


def _spent(spent: list[dict[str, Any]], cpu: float) -> list[str]:
    host = cpu - sum(jobs["cpu"] for jobs in spent)
    lines = [[_job(jobs["kind"]), str(jobs["jobs"]), f"{jobs['cpu']:.1f}"] for jobs in spent]
    text = (
        "The cold run by kind of job. *cell a* runs all checks, *cell b* only measures whether the "
        "results repeat; *save* and *load elsewhere* are the save/load compatibility of the releases, *float64 check* "
        "separates rounding from a behaviour change; *imports* are the environments' own processes, *host* compares and writes."
    )
    table = _table(["job", "number", "CPU s"], [*lines, ["host", "", f"{host:.1f}"]], right=2)
    return [text, table]


def _work(work: dict[str, Any]) -> list[str]:
    lines = [["imports", "", f"{work['imports']:.1f}"]]
    lines += [[kind, str(n["calls"]), f"{n['cpu']:.1f}"] for kind, n in work["calls"].items()]
    text = (
        f"A quarter of it, counted: {work['cpu']:.1f} s, of which {work['needed']:.1f} s are needed. "
        f"*watched* are calls under an instrument{_unwatched(work)}."
    )
    return [text, _table(["transformers' own", "calls", "CPU s"], lines, right=2)]


def _unwatched(work: dict[str, Any]) -> str:
    shares = [f"{kind.partition(', ')[0]} {cpu:.1f} s" for kind, cpu in work["unwatched"].items()]
    return f"; needed is what they take without: {', '.join(shares)}" if shares else ""


def _rates(rates: dict[str, Any]) -> list[str]:
    lines = []
    for name, rate in rates.items():
        for what in ("hash", "verify", "measure", "torch.equal", "memory"):
            if what in rate:
                hashing = rate["hash" if "hash" in rate else "verify"]
                lines.append([name, what, f"{rate[what] / 1e9:.2f}", f"{rate[what] / hashing:.2f}"])
    text = (
        "One tensor, one core. *memory* is a copy, *verify* hashing what is read from disk, *measure* "
        "the distances between two tensors that differ; equal tensors are compared by hash and not "
        "read at all. The last column is against hashing."
    )
    return [text, _table(["where", "what", "GB/s", "of hashing"], lines, right=2)]


def _memory(memory: dict[str, Any]) -> list[str]:
    lines = []
    for size, run in memory.items():
        if "skipped" in run:
            lines.append([size, run["skipped"], "", "", ""])
            continue
        lines.append(
            [
                size,
                f"{run['probe_over_size']:.2f}",
                f"{run['host_mb']:.0f}",
                f"{run['file_hash'] / 1e9:.2f}",
                f"{run['cold']['cpu']:.0f}",
            ]
        )
    text = (
        "A Llama of that many bytes in float32, on the oldest and the newest environment, one cell at a time. "
        "The probe's peak is that of its largest process, less what a tiny model alone needs, which is "
        "nearly all torch and transformers. Two models are held at most: the one "
        "observed and, in turn, the buffers of one made afresh from the config, a second load over poison, or one with "
        "attention forced to eager; then the second load and its bytes on the way to a file. To load a "
        "model and run it once is 1.0 on every release, and the mapped pages of its file are that."
    )
    headers = ["checkpoint", "probe's peak / size", "host's peak, MB", "file hashed, GB/s", "CPU s"]
    return [text, _table(headers, lines, right=4)]


def _traces(traces: dict[str, Any]) -> list[str]:
    lines = [
        [
            stack,
            f"{size['hidden']:,}",
            str(size["layers"]),
            str(size["tokens"]),
            f"{size['ratio']:.1f}",
        ]
        for stack, trace in traces.items()
        for size in trace["sizes"]
    ]
    headers = ["environment", "hidden", "layers", "tokens", "traced / plain"]
    return [
        "A forward with every operation hashed, against the same forward without.",
        _table(headers, lines, right=4),
    ]


AIMS = {"quick": 2.0, "default": 4.0}
"""Level -> aim for its CPU time as a multiple of bare."""
MEMORY_AIM = 1.5
"""Aim for the memory of all processes as a multiple of the weights, at the default level."""


def _real_size(real_size: dict[str, Any]) -> list[str]:
    machine = real_size["machine"]
    costs, kinds = [], []
    for model in real_size["models"]:
        name = f"{model['name']}, {model['parameters'] / 1e9:.2f} B"
        for level, cost in model["levels"].items():
            aim = AIMS.get(level)
            costs.append(
                [
                    name,
                    level,
                    f"{cost['times']:.1f}",
                    "" if aim is None else f"{aim:.0f}: {_met(cost['times'] <= aim)}",
                    f"{cost['memory_over_weights']:.1f}",
                ]
            )
            shares = sorted(cost["spent"].items(), key=lambda entry: -entry[1])
            text = ", ".join(f"{_job(kind)} {cpu / model['bare']:.1f}" for kind, cpu in shares[:5])
            kinds.append([name, level, text])
    method = (
        "`nox -s bench-real` makes these models with random weights and runs them under two releases, "
        f"on {machine['cores']} cores of {machine['cpu']}, one job at a time. *bare* is one process "
        "per release that loads the model, runs the same three prompts and decodes them, once. "
        "Imports count on neither side. Memory is that of all processes together over the weights, "
        f"with what torch and transformers hold; the aim at the default level is {MEMORY_AIM}."
    )
    where = "Which question costs what, as multiples of bare:"
    return [
        method,
        _table(["model", "level", f"CPU, {TIMES} bare", "aim", f"memory, {TIMES} weights"], costs),
        where,
        _table(["model", "level", "jobs"], kinds),
        _WHAT_A_JOB_IS_FOR,
    ]


_WHAT_A_JOB_IS_FOR = """\
Without *cell a* there is nothing to compare. *cell b* is the second run of each cell; without it nobody learns that a
cell reads uninitialised memory or depends on chance. *float64 check* computes cells that differ again in float64; without it
every difference is undecided. It starts for no cell that holds the same bits, and its copy of the model in float64 is
most of the memory. Where 1.25 times that copy does not fit in a job's part of the free memory, the check converts parameters
one operation at a time, which takes up to four times the CPU time. *save* and *load elsewhere* make no verdict."""


def _levels(levels: dict[str, Any]) -> list[str]:
    method = (
        "`nox -s levels` runs models of zoo.yaml at each level and compares what the runs conclude about "
        "each cell: verdict, signals, exceptions, findings, broken relations. A level must not conclude "
        f"what the deeper one does not. Last run {levels['date']}: {levels['models']} models, "
        f"{levels['cells']} cells, {levels['conclusions']:,} conclusions with `--deep`."
    )
    lines = [
        [f"{step['level']} and {step['deeper']}", which, _listed(step[key])]
        for step in levels["steps"]
        for which, key in (
            (f"only {step['deeper']} concludes", "only_deeper"),
            (f"contradicted by {step['deeper']}", "contradictions"),
        )
    ]
    return [method, _table(["levels", "conclusions", "kinds, with the number of cells"], lines)]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} ({n})" for kind, n in counts.items()) or "none"


def _table(headers: list[str], lines: list[list[str]], right: int = 0) -> str:
    align = ["left"] * (len(headers) - right) + ["right"] * right
    return tabulate(lines, headers, "pipe", colalign=align, disable_numparse=True)


def main() -> None:
    """Write the document from the results of the last whole run."""
    PATH.write_text(document(), "utf-8")


def document() -> str:
    """Return the document of the committed results."""
    real_size, levels = (
        json.loads(path.read_text("utf-8")) if path.exists() else None
        for path in (REAL_SIZE, LEVELS)
    )
    return render(json.loads(RESULTS.read_text("utf-8")), real_size, levels)


if __name__ == "__main__":
    main()
