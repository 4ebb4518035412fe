"""Which CPU computes decides which cells round; nothing that decides whether a run passes.

The same cells of the zoo run under settings that make torch, MKL and oneDNN take the kernels of other
CPUs. Only identical and rounding may trade places, as three rows of the zoo did between two machines.
"""

import platform
from fnmatch import fnmatchcase

import pytest
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

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the settings are those of x86"
)


def cut():
    """Return the zoo with these models alone, and few questions that make no verdict."""
    zoo = yaml.safe_load((ROOT / "zoo.yaml").read_text("utf-8"))
    plain = {"relations": False, "crossings": False, "usage": False, "samples": 0, "greedy": 6}
    models = {
        name: zoo["models"][name] | plain | {"dtypes": dtypes, "attention": "default"}
        for name, dtypes in MODELS.items()
    }
    entries = [found for entry in zoo["expected"] if (found := cut_entry(entry))]
    return zoo | {"stacks": [OLD, NEW], "models": models, "expected": entries}


def cut_entry(entry):
    """Return an expected entry without the names that are not there; None if nothing is left."""
    models = named(entry["model"], MODELS)
    variants = {f"{dtype}-default" for name in models for dtype in MODELS[name]}
    found = {
        "model": models,
        "stack": named(entry["stack"], (OLD, NEW)),
        "variant": named(entry.get("variant", "*"), variants),
    }
    return entry | found if all(found.values()) else None


def named(patterns, names):
    patterns = [patterns] if isinstance(patterns, str) else patterns
    return sorted(n for n in names if any(fnmatchcase(n, pattern) for pattern in patterns))


@pytest.fixture(scope="module")
def reports(tmp_path_factory, run_in):
    """The reports by setting, and that of this CPU once more, all in one folder of work."""
    folder = tmp_path_factory.mktemp("settings")
    (folder / "tests").symlink_to(ROOT / "tests")  # where the checkpoint with own code is
    (folder / "matrix.yaml").write_text(yaml.safe_dump(cut()))
    found = {name: run_in(folder, kernels=kernels) for name, kernels in SETTINGS.items()}
    return found | {"again": run_in(folder)}


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


def test_settings_move_bits(reports):
    """The proof would be empty if the kernels were the same."""
    before = bits(reports["this CPU"])
    moved = {}
    for name in SETTINGS:
        now = bits(reports[name])
        both = now.keys() & before.keys()
        moved[name] = sum(now[key] != before[key] for key in both) / len(both)
    assert moved["this CPU"] == 0
    assert moved["without vector instructions"] > 0.1
    assert moved["MKL's kernels of an old CPU"] > 0.1
    plain = bits(reports["without vector instructions"])
    assert plain != bits(reports["AVX2"])  # whatever this CPU has


def test_the_same_cells_fail_under_every_setting(reports):
    found = {name: failing(reports[name]) for name in SETTINGS}
    first = found["this CPU"]
    assert {*first.values()} == {Verdict.DIVERGED, Verdict.FAILED, Verdict.UNSTABLE}
    assert found == dict.fromkeys(SETTINGS, first)


def test_the_run_passes_under_every_setting(reports):
    ends = {name: (reports[name].exit_code, reports[name].reasons) for name in SETTINGS}
    assert ends == dict.fromkeys(SETTINGS, (0, ()))
    fixed = {name: [e.fixed for e in reports[name].expected if e.fixed] for name in SETTINGS}
    assert fixed == {name: [] for name in SETTINGS}


def test_each_entry_covers_the_same_cells_under_every_setting(reports):
    covered = {name: [e.cells for e in reports[name].expected] for name in SETTINGS}
    first = covered["this CPU"]
    assert all(first)
    assert covered == dict.fromkeys(SETTINGS, first)


def test_captures_of_two_settings_never_meet(reports):
    """Each setting ran its cells; the machine's own were found again as they had been."""
    ran = {name: {spent.kind for spent in report.spent} for name, report in reports.items()}
    assert all({"cell a", "cell b"} <= ran[name] for name in SETTINGS)
    assert "cell a" not in ran["again"]
    assert bits(reports["again"]) == bits(reports["this CPU"])
    shown = {name: reports[name].machine.environment for name in SETTINGS}
    assert all(SETTINGS[name].items() <= shown[name].items() for name in SETTINGS)
    capability = {name: reports[name].machine.cpu_capability for name in SETTINGS}
    assert capability["without vector instructions"] == "DEFAULT"
    assert capability["AVX2"] == "AVX2"
