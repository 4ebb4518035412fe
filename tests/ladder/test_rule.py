"""What each rule of the float64 check rests on, each at both ends: a condition that never decides fails here."""

import pytest

from samebits.compare.standing import LEAKED
from samebits.ladder.distance import Distance
from samebits.ladder.rule import Evidence, is_left_over, judgement, lacks_float32, worse
from samebits.ladder.steps import verdict
from samebits.records.capture import Failure
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ladder import Constant, Errors, Ladder, LadderFile, Rung, SplitJudgement
from samebits.records.subject import Reason, Subject
from samebits.records.tensor import TensorRef
from tests.support.builders import cell_id, ladder_step

SHORT, LONG = Subject(prompt="short"), Subject(prompt="long")
ROUNDS = ladder_step()
HAS = TensorRef(hash="a" * 64, dtype="float32", shape=(1,))


def layer(prompt="short", index=0, **fields):
    subject = Subject(prompt=prompt, layer=index)
    return ladder_step(signal="hidden_states", subject=subject, **fields)


def stays(subject=SHORT, float64=1.0, **fields):
    return ladder_step(subject=subject, float64=float64, kind="diverged", **fields)


def differing(signal, *subjects, outcome="differs", **fields):
    items = tuple(ItemComparison(subject=each, outcome=outcome, **fields) for each in subjects)
    return SignalComparison(
        signal=signal, outcome=outcome, n_items=len(items), n_differ=len(items), items=items
    )


def judged(*steps, signals=(), **more):
    return judgement(Evidence(tuple(signals), steps=steps, **more))


def rests_on(found):
    return [(decider.signal, str(decider.subject)) for decider in found.rests_on]


# --- a difference that float64 leaves ----------------------------------------------------------


def test_a_layer_alone_that_stays_is_another_quantity_unless_what_follows_is_not_known():
    alone = layer(kind="diverged", float64=1.0)
    assert (judged(alone).kind, judged(alone, ROUNDS).kind) == ("undecided", "undecided")
    assert "agree in float64" in judged(alone, ROUNDS).reason
    assert judged(alone, stays()).kind == "diverged"
    assert judged(alone, ladder_step(kind="undecided", float64=0.01)).kind == "diverged"


def test_a_verdict_rests_on_the_prompts_whose_logits_stay():
    steps = [layer("short", kind="diverged"), layer("long", kind="diverged"), stays(LONG), ROUNDS]
    found = judged(*steps)
    assert {decider.subject.prompt for decider in found.rests_on} == {"long"}
    assert [decider.signal for decider in found.rests_on] == ["hidden_states", "logits"]


def test_the_reason_quotes_the_largest_difference_that_stays():
    found = judged(stays(float64=0.25), stays(LONG, float64=0.5), ladder_step(float64=0.75))
    assert "5e-01" in found.reason or "0.5" in found.reason
    assert "long" in found.reason


def test_a_verdict_rests_on_the_first_layer_of_all_that_differ():
    steps = [layer(index=n, kind="diverged") for n in (3, 1, 2)]
    assert rests_on(judged(*steps, stays()))[0][1] == str(Subject(prompt="short", layer=1))


# --- tokens --------------------------------------------------------------------------------------


def split(near_tie, prompt="short", **fields):
    usual = {"step": 2, "margin": 0.5, "drift": 0.1}
    return SplitJudgement(prompt=prompt, near_tie=near_tie, **(usual | fields))


@pytest.mark.parametrize(
    ("ties", "kind"),
    [
        ((True,), "rounding"),
        ((False,), "diverged"),
        ((None,), "undecided"),
        ((True, None), "undecided"),
        ((None, False), "diverged"),
    ],
)
def test_tokens_round_only_where_each_split_is_a_near_tie(ties, kind):
    splits = tuple(split(tie, prompt) for tie, prompt in zip(ties, ("short", "long"), strict=False))
    assert judged(ROUNDS, splits=splits).kind == kind


def test_a_split_is_what_the_verdict_rests_on_and_no_other_prompts():
    tokens = differing("greedy", SHORT, LONG)
    found = judged(ROUNDS, signals=[tokens], splits=(split(True), split(False, "long")))
    assert rests_on(found) == [("greedy", str(LONG))]


def test_the_figures_of_a_split_are_shown_unless_it_has_a_note():
    plain, noted = (split(False, margin=0.5, drift=0.25, note=note) for note in ("", "it ends"))
    reasons = [judged(ROUNDS, splits=(far,)).reason for far in (plain, noted)]
    assert "the margin of 0.5 is more than twice the drift of 0.25" in reasons[0]
    assert reasons[1].endswith("near-tie: it ends")


# --- nothing rounds because something else does ------------------------------------------------


@pytest.mark.parametrize(
    ("signal", "computed", "differs"),
    [
        (
            "outputs",
            Subject(prompt="short", tensor="a"),
            Subject(prompt="short", tensor="b"),
        ),
        ("logits", SHORT, LONG),
        ("decode", Subject(prompt="short", row=0), Subject(prompt="short", row=1)),
    ],
)
def test_a_difference_that_was_not_computed_keeps_the_rest_from_rounding(signal, computed, differs):
    step, has = ladder_step(signal=signal, subject=computed), {"candidate": HAS}
    assert judged(step, signals=[differing(signal, computed, **has)]).kind == "rounding"
    found = judged(step, signals=[differing(signal, computed, differs, **has)])
    assert (found.kind, rests_on(found)) == ("undecided", [(signal, str(differs))])


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [("only here", "diverged"), ("only in reference", "diverged"), ("identical", "rounding")],
)
def test_a_part_of_a_probe_on_one_side_is_another_result(outcome, kind):
    part = differing("my_probe", Subject(tensor="a"), outcome=outcome)
    assert judged(ROUNDS, signals=[part]).kind == kind


@pytest.mark.parametrize(
    ("steps", "more", "rule"),
    [
        ((ROUNDS,), {}, "missing output"),
        ((stays(),), {}, "slope"),
        ((layer(kind="diverged"),), {}, "missing output"),
        ((stays(),), {"unrepeated": "not its own run's"}, "missing output"),
    ],
)
def test_an_output_that_is_gone_weighs_less_than_other_logits(steps, more, rule):
    gone = differing("outputs", Subject(prompt="short", tensor="pooler"))
    assert judged(*steps, signals=[gone], **more).rule == rule


def test_an_output_that_is_laid_out_otherwise_is_not_gone():
    same = differing("outputs", Subject(prompt="short", tensor="pooler"), reason=Reason.REGROUPED)
    assert judged(ROUNDS, signals=[same]).rule == "shape"


def test_a_cast_covers_its_own_tensor_alone():
    first, second = Subject(tensor="w"), Subject(tensor="v")
    cast = Constant(signal="weights", subject=first, kind="cast", coarser="candidate")
    assert judged(signals=[differing("weights", first)], constants=(cast,)).kind == "rounding"
    both = differing("weights", first, second)
    assert judged(signals=[both], constants=(cast,)).kind == "undecided"


@pytest.mark.parametrize(
    ("kind", "verdict_of"), [("changed", "diverged"), ("not known", "undecided")]
)
def test_a_constant_that_is_no_cast_decides_before_what_rounds(kind, verdict_of):
    constant = Constant(signal="weights", subject=Subject(tensor="w"), kind=kind)
    found = judged(ROUNDS, constants=(constant,))
    assert (found.kind, rests_on(found)) == (verdict_of, [("weights", "w")])


@pytest.mark.parametrize(("reason", "kind"), [(Reason.STATE, "diverged"), (None, "undecided")])
def test_a_state_that_is_left_behind_decides_where_its_reason_is_known(reason, kind):
    left = differing("state", SHORT, reason=reason)
    assert judged(ROUNDS, signals=[left]).kind == kind
    assert (
        judged(ROUNDS, signals=[differing("state", SHORT, outcome="identical")]).kind == "rounding"
    )


# --- what a judgement is worth -----------------------------------------------------------------


def ladder_of(kind, *steps, rule="slope"):
    return Ladder(kind=kind, rule=rule, reason="", steps=steps)


@pytest.mark.parametrize(
    ("ladder", "expected"),
    [
        (ladder_of("undecided", ladder_step(kind="undecided", float64=0.01)), True),
        (ladder_of("undecided", ladder_step(kind="undecided", float64=None)), False),
        (ladder_of("undecided", ladder_step(kind="rounding", float64=0.01)), False),
        (ladder_of("diverged", stays(float64=0.25)), True),
        (ladder_of("diverged", stays(float64=0.25), stays(LONG, float64=0.75)), False),
        (ladder_of("diverged", stays(float64=0.75), ladder_step(float64=0.25)), False),
        (ladder_of("diverged", stays(float64=0.75), ladder_step(own=0.0, float64=0.25)), True),
        (ladder_of("diverged", stays(float64=0.75), ladder_step(own=0.0, float64=0.0)), False),
        (ladder_of("diverged", stays(float64=0.25), rule="stored constant"), False),
        (ladder_of("rounding", ladder_step(kind="undecided", float64=0.01)), False),
    ],
)
def test_what_a_rounded_table_may_leave_is_looked_at_again(ladder, expected):
    assert is_left_over(ladder) is expected


def side(dtype="bfloat16", rungs=("own", "float64"), failure=None):
    return LadderFile(
        cell=cell_id("5.x", dtype=dtype), rungs=dict.fromkeys(rungs, Rung()), failure=failure
    )


RAISED = Failure(phase="load", type="ValueError", message="no", traceback="")
WITH = ("own", "float32", "float64")


@pytest.mark.parametrize(
    ("files", "steps", "expected"),
    [
        ((side(), side()), [ladder_step(kind="undecided")], True),
        ((side(rungs=WITH), side()), [ladder_step(kind="undecided")], True),
        ((side(rungs=WITH), side(rungs=WITH)), [ladder_step(kind="undecided")], False),
        ((side("float32"), side("float32")), [ladder_step(kind="undecided")], False),
        ((side(failure=RAISED), side(rungs=WITH)), [ladder_step(kind="undecided")], False),
        ((side(), side()), [ROUNDS], False),
        ((side(), side()), [ladder_step(kind="undecided", note=LEAKED)], False),
    ],
)
def test_the_float32_rung_is_asked_for_where_it_can_decide(files, steps, expected):
    assert lacks_float32(ladder_of("undecided", *steps), files) is expected


def off_by(reference, candidate, subject=SHORT, **fields):
    errors = Errors(n=400, reference=reference, candidate=candidate)
    return ladder_step(subject=subject, errors=errors, **fields)


def coarser(side_of, kind="cast"):
    return Constant(
        signal="weights", subject=Subject(tensor=str(side_of)), kind=kind, coarser=side_of
    )


@pytest.mark.parametrize(
    ("steps", "constants", "expected"),
    [
        ([off_by(1.0, 3.0)], [coarser("reference")], ("reference", None)),
        ([off_by(1.0, 3.0)], [coarser("reference", "changed")], ("candidate", 3.0)),
        ([off_by(1.0, 3.0)], [coarser("reference"), coarser("candidate")], ("candidate", 3.0)),
        ([off_by(1.0, 1.0), off_by(1.0, 3.0)], [], (None, None)),
        ([off_by(1.0, 1.0, own=0.0), off_by(1.0, 3.0)], [], ("candidate", 3.0)),
        ([off_by(1.0, 3.0), off_by(1.0, 4.0, LONG)], [], ("candidate", 4.0)),
        ([off_by(1.0, 3.0), off_by(4.0, 1.0, LONG)], [], (None, None)),
        ([off_by(1.0, 3.0, signal="outputs")], [], ("candidate", 3.0)),
        ([off_by(1.0, 3.0, signal="greedy")], [], (None, None)),
        ([off_by(0.0, 0.0)], [], (None, None)),
        ([ladder_step(), off_by(1.0, 3.0, LONG)], [], ("candidate", 3.0)),
    ],
)
def test_the_worse_side_is_read_where_each_prompt_starts_to_differ(steps, constants, expected):
    assert worse(steps, constants) == expected


# --- one tensor ----------------------------------------------------------------------------------


def apart(size, *, same=False, finite=True):
    return Distance(size, same_values=same, finite_alike=finite)


@pytest.mark.parametrize(
    ("own", "low", "high", "kind"),
    [
        (None, apart(1.0), apart(0.0), "undecided"),
        (apart(1.0, finite=False), apart(1.0), apart(0.0), "diverged"),
        (apart(1.0), apart(1.0), apart(0.0, finite=False), "diverged"),
        (apart(0.0, same=True), None, None, "same"),
        (apart(0.0), apart(1.0), apart(0.0), "undecided"),
        (apart(0.0), apart(1.0), apart(0.5), "diverged"),
        (apart(0.5), apart(1.0), apart(0.0), "rounding"),
    ],
)
def test_a_tensor_is_judged_by_the_first_rung_that_decides(own, low, high, kind):
    assert verdict(own, low, high, [], [])[0] == kind
