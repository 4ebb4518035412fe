"""What is laid beside what on each rung: outputs, rows of padding, and what one side lacks."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

from samebits.compare.pair import Pair
from samebits.ladder.constants import constants
from samebits.ladder.steps import Climb, steps
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ladder import LadderFile, Rung, RungForward, RungLayer
from samebits.records.subject import Reason, Subject
from tests.support.builders import cell_id, forward, layers, sound, values, with_outputs

OUTPUT = values(1, 4, seed=9)
PADDED = values(2, 3, 8, seed=5)
SIDES = ((0, "4.48"), (1, "5.x"))
"""Number of a side, and its stack."""
TINY, SMALL, LARGE = 1e-15, np.float32(1e-6), np.float32(1.0)


def climbed(memory, captures, forwards, prompt, leaks=()):
    """Return the steps of two captures, whose float64 rungs have these forwards."""
    files = tuple(
        LadderFile(
            cell=cell_id(stack), rungs={"float64": Rung(forward={prompt: each}, leaks=leaks)}
        )
        for stack, each in zip(("4.48", "5.x"), forwards, strict=True)
    )
    return steps(Climb(Pair(*captures, memory), files))


def of_outputs(memory, captures, forwards, **more):
    found = climbed(memory, captures, forwards, "short", **more)
    return tuple(step for step in found if step.signal == "outputs")


def with_output(memory, name, output, stack):
    return with_outputs(memory, sound(memory, stack), **{name: output})


def wide(memory, array, by=0.0):
    return memory.put(np.asarray(array, np.float64) + by)


@pytest.mark.parametrize(("by", "kind"), [(TINY, "rounding"), (1e-6, "diverged")])
def test_an_output_is_judged_by_its_own_rungs(memory, by, kind):
    captures = [with_output(memory, "pooler", OUTPUT + n * SMALL, s) for n, s in SIDES]
    forwards = [RungForward(outputs={"pooler": wide(memory, OUTPUT, n * by)}) for n, _ in SIDES]
    (step,) = of_outputs(memory, captures, forwards)
    assert (step.signal, step.kind, step.subject.tensor) == ("outputs", kind, "pooler")


def test_an_output_of_the_same_bytes_or_of_another_shape_has_no_step(memory):
    for changed in (OUTPUT, OUTPUT[:, :2]):
        captures = [
            with_output(memory, "pooler", output, stack)
            for output, (_, stack) in zip((OUTPUT, changed), SIDES, strict=True)
        ]
        forwards = [RungForward(outputs={"pooler": wide(memory, OUTPUT)})] * 2
        assert of_outputs(memory, captures, forwards) == ()


def test_an_output_that_only_float64_tells_apart_has_a_step(memory):
    captures = [with_output(memory, "pooler", OUTPUT, stack) for _, stack in SIDES]
    forwards = [RungForward(outputs={"pooler": wide(memory, OUTPUT, n * 0.5)}) for n, _ in SIDES]
    (step,) = of_outputs(memory, captures, forwards)
    assert (step.kind, step.own) == ("undecided", 0.0)


def test_an_output_that_a_rung_lacks_is_not_judged_by_what_stands_in_its_place(memory):
    captures = [with_output(memory, "pooler", OUTPUT + n * SMALL, s) for n, s in SIDES]
    forwards = [
        RungForward(outputs={"pooler": wide(memory, OUTPUT)}),
        RungForward(outputs={"state": wide(memory, OUTPUT)}),
    ]
    (step,) = of_outputs(memory, captures, forwards)
    assert (step.kind, step.float64) == ("undecided", None)


@pytest.mark.parametrize(
    ("own", "by", "leaks", "kind"),
    [
        (SMALL, 1e-6, (), "diverged"),
        (SMALL, 1e-6, ("aten::conv",), "undecided"),
        (SMALL, TINY, ("aten::conv",), "rounding"),
        (np.float32("nan"), 0.0, ("aten::conv",), "diverged"),
    ],
)
def test_less_than_float64_leaves_open_what_stays_but_no_nan(memory, own, by, leaks, kind):
    captures = [
        with_output(memory, "pooler", output, stack)
        for output, (_, stack) in zip((OUTPUT, OUTPUT + own), SIDES, strict=True)
    ]
    forwards = [RungForward(outputs={"pooler": wide(memory, OUTPUT, n * by)}) for n, _ in SIDES]
    (step,) = of_outputs(memory, captures, forwards, leaks=leaks)
    assert step.kind == kind


# --- stored numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sides", "reason", "kind"),
    [
        ((OUTPUT, None), None, "changed"),
        ((None, OUTPUT), None, "changed"),
        ((OUTPUT, None), Reason.DTYPE, "not known"),  # in parts of several dtypes
        ((OUTPUT, OUTPUT + 1), None, "changed"),
        ((OUTPUT, OUTPUT.astype(bfloat16)), None, "cast"),
        ((OUTPUT.astype(bfloat16), OUTPUT), None, "cast"),
        ((OUTPUT, OUTPUT.astype(bfloat16) * 2), None, "changed"),
        ((OUTPUT, OUTPUT.view(np.int32)), None, "changed"),  # the same bytes are other numbers
    ],
)
def test_a_stored_tensor_changed_unless_a_side_holds_the_rounded_one(memory, sides, reason, kind):
    reference, candidate = (None if side is None else memory.put(side) for side in sides)
    item = ItemComparison(
        subject=Subject(tensor="w"),
        outcome="differs",
        reason=reason,
        reference=reference,
        candidate=candidate,
    )
    signal = SignalComparison(
        signal="weights", outcome="differs", n_items=1, n_differ=1, items=(item,)
    )
    (constant,) = constants([signal], memory)
    coarser = ["reference", "candidate"][sides[1] is not None and sides[1].dtype == bfloat16]
    assert (constant.kind, constant.coarser) == (kind, coarser if kind == "cast" else None)


# --- rows of padding ---------------------------------------------------------------------------


def moved(padding, real):
    """Return the padded batch with its row of padding and its real rows moved."""
    changed = PADDED + np.float32(real)
    changed[0, 0] = PADDED[0, 0] + padding
    return changed


def of_padded(memory, what, array, stack, **facts):
    """Return a capture whose padded batch has ``array`` as layer, as logits or as output."""
    more = {"hidden": layers(memory, array)} if what == "hidden_states" else {}
    more |= {"logits": array} if what == "logits" else {}
    made = forward(memory, ids=np.ones((2, 3)), real_rows=((1, 3), (0, 3)), **more)
    made = made.model_copy(update=facts)
    run = sound(memory, stack, forward={"padded": made}, greedy=None)
    return with_outputs(memory, run, "padded", pooler=array) if what == "outputs" else run


def rung_of(memory, what, array):
    ref = wide(memory, array)
    fields = {
        "hidden_states": {"hidden_states": (RungLayer(name="model.layers.0", ref=ref),)},
        "logits": {"logits": ref},
        "outputs": {"outputs": {"pooler": ref}},
    }
    return RungForward(**fields[what])


@pytest.mark.parametrize("what", ["hidden_states", "logits", "outputs"])
@pytest.mark.parametrize(
    ("own", "exact", "kinds"),
    [
        (
            moved(LARGE, SMALL),
            moved(LARGE, 0.0),
            ["rounding"],
        ),  # another padding, as of another mask
        (moved(0.0, LARGE), moved(0.0, LARGE), ["diverged"]),
        (moved(LARGE, 0.0), moved(LARGE, 0.0), []),
    ],
)
def test_rows_of_padding_play_no_part(memory, what, own, exact, kinds):
    captures = [
        of_padded(memory, what, array, stack)
        for array, (_, stack) in zip((PADDED, own), SIDES, strict=True)
    ]
    forwards = [rung_of(memory, what, array) for array in (PADDED, exact)]
    found = climbed(memory, captures, forwards, "padded")
    assert [step.kind for step in found if step.own or step.kind != "same"] == kinds


def test_logits_whose_padding_is_not_known_on_one_side_are_not_judged(memory):
    for facts in ({}, {"logits_padded": False}):
        captures = [of_padded(memory, "logits", PADDED, "4.48")]
        captures.append(of_padded(memory, "logits", moved(LARGE, SMALL), "5.x", **facts))
        forwards = [rung_of(memory, "logits", array) for array in (PADDED, moved(LARGE, 0.0))]
        found = climbed(memory, captures, forwards, "padded")
        assert bool(found) is not bool(facts)
