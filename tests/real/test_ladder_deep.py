"""The ladder that decodes only what it must says what the whole ladder says, on models of the zoo."""

import shutil

import pytest

from samebits.ladder.verdicts import judge_by_ladder
from samebits.matrix.plan import Selection
from samebits.pipeline import run as pipeline
from tests.real.conftest import NEW, OLD, ROOT

MODELS = ("llama", "llama-dynamic", "gemma2", "cohere2", "mixtral")
"""Models that round in one decode only, that keep a state, whose difference is hidden in the own
dtype, that diverge, and whose choices flip."""


@pytest.fixture(scope="module")
def ladders(tmp_path_factory, run_in):
    """Return the results of the default, and those of a ladder that leaves nothing out."""
    folder = tmp_path_factory.mktemp("deep")
    zoo = (ROOT / "zoo.yaml").read_text("utf-8").replace("    relations: true", "")
    zoo = zoo.replace("tests/custom/", f"{ROOT}/tests/custom/")
    (folder / "matrix.yaml").write_text(
        zoo.replace("  relations: false", "  relations: false\n  crossings: false")
    )
    selection = Selection(models=MODELS, stacks=(OLD, NEW), attention=("default",))
    default = run_in(folder, selection=selection)
    shutil.rmtree(folder / ".samebits" / "rows")  # the captures stay
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "judge_by_ladder", whole_ladder)
        deep = run_in(folder, selection=selection)
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
