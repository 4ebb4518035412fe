"""Which CPU computes decides which cells round; nothing that decides whether a run passes.

Only identical and rounding may trade places, as three rows of the zoo did between two machines. To be run after
a change of the ladder, of limits of rounding, or of what makes a cell unstable.
"""

import platform

import pytest

from samebits.records.ids import Verdict
from tests.support.cpu_settings import MODELS, SETTINGS, bits, failing, run_under, settings_of

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the settings are those of x86"
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory, run_in):
    """The reports by setting, and that of this CPU once more."""
    return run_under(SETTINGS, MODELS, tmp_path_factory.mktemp("settings"), run_in)


def test_settings_move_bits(reports):
    """The proof would be empty if the kernels were the same."""
    before = bits(reports["this CPU"])
    moved = {}
    for name in settings_of(reports):
        now = bits(reports[name])
        both = now.keys() & before.keys()
        moved[name] = sum(now[key] != before[key] for key in both) / len(both)
    assert moved.pop("this CPU") == 0
    assert moved["without vector instructions"] > 0.1
    assert moved["MKL's kernels of an old CPU"] > 0.1
    plain = bits(reports["without vector instructions"])
    assert plain != bits(reports["AVX2"])  # whatever this CPU has


def test_the_same_cells_fail_under_every_setting(reports):
    failures = {name: failing(reports[name]) for name in settings_of(reports)}
    first = failures["this CPU"]
    assert {*first.values()} == {Verdict.DIVERGED, Verdict.FAILED, Verdict.UNSTABLE}
    assert failures == dict.fromkeys(settings_of(reports), first)


def test_the_run_passes_under_every_setting(reports):
    ends = {name: (reports[name].exit_code, reports[name].reasons) for name in settings_of(reports)}
    assert ends == dict.fromkeys(settings_of(reports), (0, ()))
    fixed = {
        name: [e.fixed for e in reports[name].expected if e.fixed] for name in settings_of(reports)
    }
    assert fixed == {name: [] for name in settings_of(reports)}


def test_each_entry_covers_the_same_cells_under_every_setting(reports):
    covered = {name: [e.cells for e in reports[name].expected] for name in settings_of(reports)}
    first = covered["this CPU"]
    assert all(first)
    assert covered == dict.fromkeys(settings_of(reports), first)


def test_captures_of_two_settings_never_meet(reports):
    """Each setting ran its cells; the machine's own were found again as they had been."""
    ran = {name: {spent.kind for spent in report.spent} for name, report in reports.items()}
    assert all({"cell a", "cell b"} <= ran[name] for name in settings_of(reports))
    assert "cell a" not in ran["again"]
    assert bits(reports["again"]) == bits(reports["this CPU"])
    shown = {name: reports[name].machine.environment for name in settings_of(reports)}
    assert all(SETTINGS[name].items() <= shown[name].items() for name in settings_of(reports))
    capability = {name: reports[name].machine.cpu_capability for name in settings_of(reports)}
    assert capability["without vector instructions"] == "DEFAULT"
    assert capability["AVX2"] == "AVX2"
