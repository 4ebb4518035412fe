"""Cells of the zoo under settings that make torch, MKL and oneDNN take the kernels of other CPUs."""

from fnmatch import fnmatchcase

import yaml

from samebits.records.ids import Verdict
from tests.real.conftest import NEW, OLD, ROOT

BOTH, ONE = ["float32", "bfloat16"], ["float32"]
MODELS = {
    "llama": ONE,  # rounding
    "gptj": BOTH,  # rounding, by where its weights are in memory, too; diverged in bfloat16
    "gpt2-scaled": ONE,  # diverged
    "gpt_bigcode": BOTH,  # diverged in the forward, while decode rounds or is identical
    "gemma2": ONE,  # diverged
    "mixtral": BOTH,  # rounding, and routing that rounding tips
    "t5": ONE,  # failed
    "roberta": BOTH,  # diverged by a stored number, identical in bfloat16
    "custom-inv-freq-buffer": ONE,  # unstable
}
SETTINGS = {
    "this CPU": {},
    "without vector instructions": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "MKL's kernels of an old CPU": {"MKL_CBWR": "COMPATIBLE"},
}
FAILING = (Verdict.DIVERGED, Verdict.UNDECIDED, Verdict.FAILED, Verdict.UNSTABLE)


def cut(variants):
    """Return the zoo with these models and dtypes alone, and few questions that make no verdict."""
    zoo = yaml.safe_load((ROOT / "zoo.yaml").read_text("utf-8"))
    plain = {"questions": ["training"], "samples": 0, "greedy": 6}
    models = {
        name: zoo["models"][name] | plain | {"dtypes": dtypes, "attention": "default"}
        for name, dtypes in variants.items()
    }
    entries = [found for entry in zoo["expected"] if (found := cut_entry(entry, variants))]
    return zoo | {"environments": [OLD, NEW], "models": models, "expected": entries}


def cut_entry(entry, dtypes):
    """Return an expected entry without the names that are not there; None if nothing is left."""
    models = named(entry["model"], dtypes)
    variants = {f"{dtype}-default" for name in models for dtype in dtypes[name]}
    found = {
        "model": models,
        "environment": named(entry["environment"], (OLD, NEW)),
        "variant": named(entry.get("variant", "*"), variants),
    }
    return entry | found if all(found.values()) else None


def named(patterns, names):
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return sorted(n for n in names if any(fnmatchcase(n, pattern) for pattern in patterns))


def run_under(settings, variants, folder, run_in):
    """Return the reports by setting, and that of the first setting once more, all in one folder of work."""
    (folder / "tests").symlink_to(ROOT / "tests")  # where the checkpoint with own code is
    (folder / "matrix.yaml").write_text(yaml.safe_dump(cut(variants)))
    reports = {name: run_in(folder, kernels=kernels) for name, kernels in settings.items()}
    return reports | {"again": run_in(folder)}


def settings_of(reports):
    """Return the settings under which reports were made."""
    return {name: SETTINGS[name] for name in reports if name != "again"}


def cells(report):
    return {str(cell.cell): cell for row in report.rows for cell in row.cells}


def failing(report):
    """Return what each cell that does not pass by itself is judged, whatever is expected."""
    return {n: c.judged for n, c in cells(report).items() if c.judged in FAILING}


def bits(report):
    """Return the hashes of both sides of what the report shows, by cell, signal and item."""
    return {
        (name, signal.signal, item.name): (item.reference.hash, item.candidate.hash)
        for name, cell in cells(report).items()
        for signal in cell.signals
        for item in signal.items
        if item.reference and item.candidate
    }
