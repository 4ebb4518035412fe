"""What a page says of the precision ladder."""

from functools import partial

import pytest

from samebits.records.ids import Verdict
from samebits.records.ladder import Alignment, AtRisk, Flip, Ladder, SplitJudgement
from samebits.reports.cell.ladder import RULE_WORDS, ladder_of
from samebits.reports.stories import verdict_word
from tests.support.builders import cell_id, cell_result, ladder_step

step = partial(ladder_step, own=0.25, float32=7.9e-07, float64=1.6e-15)


def cell(ladder=None, verdict=Verdict.ROUNDING, judged=None, dtype="bfloat16"):
    fields = {"judged": judged or verdict, "figure": "logits 0.25", "ladder": ladder}
    reference = cell_id("4.48", dtype=dtype)
    return cell_result(cell_id("5.x", dtype=dtype), verdict, reference=reference, **fields)


def ladder(**more):
    told = {"kind": "rounding", "rule": "slope", "reason": "it goes away in float64"}
    return Ladder(**(told | {"steps": (step(),)} | more))


def test_a_cell_that_climbed_nothing_has_no_block():
    assert ladder_of(cell()) == ""


def test_the_rungs_and_the_rule_are_shown():
    text = ladder_of(cell(ladder()))
    assert "**Rounding**, decided by the change from one precision to the next: it goes" in text
    header, _, line = (row for row in text.splitlines() if row.startswith("|"))
    assert [
        name for name in ("bfloat16", "float32", "float64", "result") if name not in header
    ] == []
    for figure in ("2.5e-01", "7.9e-07", "1.6e-15", "2.0e-09", "rounding"):
        assert figure in line


def test_a_float32_cell_has_one_float32_column():
    text = ladder_of(cell(ladder(steps=(step(own=7.9e-07),)), dtype="float32"))
    header = next(row for row in text.splitlines() if row.startswith("|"))
    assert header.replace("float64 / float32", "").count("float32") == 1


@pytest.mark.parametrize(
    ("same", "said"),
    [
        (True, "With aligned copies of them, both sides give the same bytes in the forward"),
        (False, "With aligned copies of them, both sides give different bytes in the forward"),
        (None, "It is not known whether this matters: here: OSError"),
    ],
)
def test_what_aligned_tensors_give_is_said(same, said):
    note = "here: OSError" if same is None else ""
    found = Alignment(what="forward short", off=(1, 35), same=same, note=note)
    text = ladder_of(cell(ladder(alignment=found)))
    assert (
        "Not aligned to 64 bytes in memory: 1 tensor of the reference and 35 of this cell." in text
    )
    assert said in text
    assert "Not aligned" not in ladder_of(cell(ladder()))


def test_noise_has_a_column_only_where_it_decided():
    assert "own noise" not in ladder_of(cell(ladder()))
    noisy = ladder(rule="self-noise", steps=(step(float64=None, noise=1e-06),))
    text = ladder_of(cell(noisy))
    assert "own noise" in text
    assert "the noise of each side, because there is no float64" in text


@pytest.mark.parametrize(
    ("side", "ratio", "words"),
    [
        (
            "candidate",
            3.0,
            "The less exact side is this cell: where the difference starts, it is 3 times",
        ),
        ("reference", None, "The less exact side is the reference: it holds the coarser numbers."),
    ],
)
def test_the_worse_side_is_named(side, ratio, words):
    assert words in ladder_of(cell(ladder(worse=side, worse_ratio=ratio)))


def test_tokens_and_flips_are_told_with_their_margins():
    split = SplitJudgement(prompt="short", step=4, margin=0.0625, drift=0.14, near_tie=True)
    far = split.model_copy(update={"prompt": "long", "near_tie": False})
    flip = Flip(prompt="long", choice="topk 1", rows=1, margin=2.1e-05, in_float64=False)
    risk = AtRisk(prompt="short", steps=(4, 7), n_steps=12)
    text = ladder_of(cell(ladder(splits=(split, far), flips=(flip,), at_risk=(risk,))))
    assert "`short`, step 4: a near-tie: the margin is 6.2e-02" in text
    assert "`long`, step 4: not a near-tie" in text
    assert "rounding can flip 2 of 12 steps" in text
    assert "`topk 1` of `long` chooses differently at 1 position" in text
    assert "in float64 the choices agree" in text


def test_every_rule_has_words():
    for rule in RULE_WORDS:
        assert RULE_WORDS[rule] in ladder_of(cell(ladder(rule=rule)))


def test_an_expected_difference_says_of_which_kind_it_is():
    assert verdict_word(cell(verdict=Verdict.EXPECTED, judged=Verdict.DIVERGED)) == (
        "expected, diverged"
    )
    assert verdict_word(cell(verdict=Verdict.EXPECTED, judged=Verdict.UNSTABLE)) == (
        "expected, unstable"
    )
    assert verdict_word(cell()) == "rounding"
