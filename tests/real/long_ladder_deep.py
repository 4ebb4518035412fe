"""Savings of the ladder change no verdict, on models of the zoo.

One saving decodes only what differs. The other raises large parameters for one operation at a time,
where a copy of the model would take too much memory. To be run after a change of samebits/ladder/, of the
ladder's job or of model/raised.py.
"""

import re
import shutil

import pytest

from samebits.ladder.verdicts import judge_by_ladder
from samebits.matrix.plan import Selection
from samebits.pipeline import rows, scope
from samebits.stacks import probes
from tests.real.conftest import NEW, OLD, ROOT

MODELS = ("llama", "llama-dynamic", "gemma2", "cohere2", "mixtral")
"""Models that round in one decode only, that keep a state, whose difference is hidden in the own
dtype, that diverge, and whose choices flip."""


SELECTION = Selection(models=MODELS, environments=(OLD, NEW), attention=("default",))
FIGURE = re.compile(r"\d[\d.,e+-]*")
LIMITS = {
    "jobs/ladder.py": ("_COPY_SPARE = 1.25", "_COPY_SPARE = 1e12"),
    "model/raised.py": ("MIN_BYTES = 1 << 20", "MIN_BYTES = 1"),
}
"""Module -> its limit, and the limit with which it takes these models for large ones."""


def write_matrix(folder):
    zoo = (ROOT / "zoo.yaml").read_text("utf-8").replace("    relations: true", "")
    zoo = zoo.replace("tests/custom/", f"{ROOT}/tests/custom/")
    (folder / "matrix.yaml").write_text(
        zoo.replace("  relations: false", "  relations: false\n  save_load: false")
    )


@pytest.fixture(scope="module")
def ladders(tmp_path_factory, run_in):
    """Return the results of the default, and those of a ladder that leaves nothing out."""
    folder = tmp_path_factory.mktemp("deep")
    write_matrix(folder)
    default = run_in(folder, selection=SELECTION)
    shutil.rmtree(folder / ".samebits" / "rows")  # the captures stay
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "judge_by_ladder", whole_ladder)
        deep = run_in(folder, selection=SELECTION)
    return by_cell(default), by_cell(deep)


def whole_ladder(*arguments, deep):
    assert not deep, "the run is of the default level"
    return judge_by_ladder(*arguments, deep=True)


def by_cell(report):
    return {cell.cell: cell for row in report.rows for cell in row.cells if cell.ladder is not None}


def test_no_verdict_rule_or_reason_depends_on_what_is_left_out(ladders):
    default, deep = ladders
    assert default.keys() == deep.keys()
    assert len(default) >= len(MODELS)
    for cell, result in default.items():
        whole = deep[cell]
        assert result.verdict == whole.verdict, cell
        left_out = {"steps": (), "seconds": (0.0, 0.0)}
        assert result.ladder.model_copy(update=left_out) == whole.ladder.model_copy(
            update=left_out
        ), cell


def test_every_step_is_the_same_but_for_float64_of_decodes_with_equal_bytes(ladders):
    default, deep = ladders
    left_out = 0
    for cell, result in default.items():
        for step, whole in zip(result.ladder.steps, deep[cell].ladder.steps, strict=True):
            if step != whole:
                left_out += 1
                assert (step.signal, step.kind, step.own) == ("decode", "same", 0.0), cell
                assert whole.float64 == 0.0, cell
                rungs = {"float32": whole.float32, "float64": whole.float64}
                assert step.model_copy(update=rungs) == whole, cell
    assert left_out, "nothing was left out"


@pytest.fixture(scope="module")
def raised(tmp_path_factory, run_in):
    """Return the results of probes that take every model for one without room for a copy."""
    folder = tmp_path_factory.mktemp("raised")
    patched = folder / "probes"
    shutil.copytree(probes.PROBES, patched, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (limit, small) in LIMITS.items():
        path = patched / "samebits_probe" / name
        text = path.read_text("utf-8")
        assert text.count(limit) == 1
        path.write_text(text.replace(limit, small), "utf-8")
    write_matrix(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope, "PROBES", patched)
        patch.setattr(probes, "STACK", patched / "stack.py")
        return by_cell(run_in(folder, selection=SELECTION))


def test_raised_parameters_change_no_verdict_rule_or_reason(ladders, raised):
    default, _ = ladders
    assert default.keys() == raised.keys()
    for cell, result in default.items():
        assert conclusions(raised[cell]) == conclusions(result), cell


def conclusions(cell):
    """Return what a ladder concludes, without figures: float64 rounds products of parts elsewhere."""
    ladder = cell.ladder
    texts = [FIGURE.sub("N", text) for text in (ladder.reason, *ladder.notes)]
    return cell.verdict, ladder.kind, ladder.rule, ladder.worse, ladder.alignment, texts


def test_steps_with_raised_parameters_are_of_the_same_kind(ladders, raised):
    default, _ = ladders
    for cell, result in default.items():
        pairs = zip(result.ladder.steps, raised[cell].ladder.steps, strict=True)
        for step, shared in pairs:
            assert (step.signal, step.kind, step.own) == (shared.signal, shared.kind, shared.own)
            if step.float64 is None or shared.float64 is None:
                assert step.float64 == shared.float64, cell
                continue
            # float64 rounds products of parts elsewhere: of the order of 1e-15, as all of float64
            assert abs(step.float64 - shared.float64) <= max(1e-3 * step.float64, 1e-9), cell
