"""The precision ladder as pure functions: each rule at both ends, on captures in memory."""

import asyncio

import numpy as np
import pytest
from ml_dtypes import bfloat16

from samebits.compare.pair import Pair
from samebits.compare.signals import compare
from samebits.diagnose.verdict import result
from samebits.ladder.alignment import alignment, to_align
from samebits.ladder.asking import asks
from samebits.ladder.constants import cast_between
from samebits.ladder.distance import Distance, array_distance, own_errors
from samebits.ladder.flips import flips
from samebits.ladder.judge import ladder
from samebits.ladder.rule import CLEAR, Evidence, judgement, worse
from samebits.ladder.steps import Climb, verdict
from samebits.ladder.verdicts import judge_by_ladder
from samebits.records.capture import Capture, Failure, Signals, Skip
from samebits.records.ladder import (
    Aligned,
    Alignment,
    Choice,
    Errors,
    LadderFile,
    LadderStep,
    Rung,
    RungForward,
    RungLayer,
)
from samebits.records.subject import Subject
from samebits_wire.rounding import KEPT, SHRUNK
from tests.support.added_signal import with_toy
from tests.support.builders import (
    buffer,
    cell_id,
    decoded,
    forward,
    frequencies,
    ladder_step,
    layers,
    sound,
    step_logits,
    values,
    weight,
    weights_signal,
    with_outputs,
    with_signals,
)

WEIGHT = values(4, 4, seed=1)
HIDDEN, LOGITS = values(1, 6, 4, seed=2), values(1, 6, 16, seed=3)
TINY = 1e-15


def capture(memory, stack, *, hidden=HIDDEN, logits=LOGITS, tensors=None, dtype="float32", **more):
    greedy = more.pop("greedy", None)
    signals = Signals(
        weights=weights_signal(tensors or {"w": weight(memory, WEIGHT, "w", stored=True)}),
        forward={
            "short": forward(
                memory,
                hidden=layers(memory, HIDDEN, hidden),
                logits=logits,
                ids=more.pop("ids", None),
            )
        },
        greedy=greedy,
        buffers=more.pop("buffers", {}),
        inv_freq=more.pop("inv_freq", {}),
    )
    cell = cell_id(stack, dtype=dtype)
    skips = (Skip(what="greedy", reason="no tokens were requested"),) if greedy is None else ()
    return Capture(cell=cell, run="a", status="complete", signals=signals, skips=skips, **more)


def rung(memory, *, hidden=HIDDEN, logits=LOGITS, by=0.0, decode=None, choices=(), **more):
    """Return a rung whose tensors are float64 and ``by`` away from those of the other side."""
    wide = [np.asarray(a, np.float64) * (1 + 1e-8) for a in (HIDDEN, hidden, logits)]
    refs = [memory.put(a + by) for a in wide]
    found = RungForward(
        logits=refs[2],
        hidden_states=(
            RungLayer(name="embeddings", ref=memory.put(wide[0])),
            RungLayer(name="model.layers.0", ref=refs[1]),
        ),
        choices=choices,
    )
    told = {name: memory.put(a) for name, a in (decode or {}).items()}
    return Rung(forward={"short": found}, decode=told, **more)


def own_rung(one, choices=(), **decode):
    """Return the rung of a cell whose layers and logits came out as in its own run."""
    facts = one.signals.forward["short"]
    hidden = tuple(RungLayer(name=layer.name, ref=layer.ref) for layer in facts.hidden_states)
    told = RungForward(logits=facts.logits, hidden_states=hidden, choices=choices)
    return Rung(forward={"short": told}, decode=decode)


def file(stack, **rungs):
    return LadderFile(cell=cell_id(stack), rungs=rungs)


def climbed(memory, one, other, *, by, own=None, splits=(), **more):
    """Return what is said of two captures that are ``by`` apart in float64."""
    own = own or (Rung(), Rung())
    files = (
        file("4.48", own=own[0], float64=rung(memory, **more)),
        file("5.x", own=own[1], float64=rung(memory, by=by, **more)),
    )
    return ladder(one, other, compare(one, other, memory), splits, memory, files)


@pytest.fixture
def pair(memory):
    """Two captures that differ in the last layer and the logits by 1e-6 or so."""
    return capture(memory, "4.48"), capture(
        memory, "5.x", hidden=HIDDEN + np.float32(1e-6), logits=LOGITS + np.float32(1e-6)
    )


def test_what_goes_away_in_float64_is_rounding_and_the_slope_says_so(memory, pair):
    found = climbed(memory, *pair, by=TINY)
    assert (found.kind, found.rule) == ("rounding", "slope"), found.reason
    assert [step.what for step in found.steps] == ["layer 1 (model.layers.0)", "logits"]
    assert all(step.ratio < SHRUNK for step in found.steps)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("times", [1000, 1 + 1e-6])
def test_an_added_signal_that_differs_does_not_round_because_the_logits_do(memory, pair, times):
    reference, candidate = pair
    tensor = values(1, 6, seed=9)
    reference = with_toy(memory, reference, short=tensor)
    candidate = with_toy(memory, candidate, short=tensor * np.float32(times))
    found = climbed(memory, reference, candidate, by=TINY)
    assert (found.kind, found.reason) == (
        "undecided",
        "toy of short was not computed in the float64 check",
    )


@pytest.mark.usefixtures("toy")
def test_an_added_signal_in_another_shape_is_another_result(memory, pair):
    reference = with_toy(memory, pair[0], short=values(1, 6))
    candidate = with_toy(memory, pair[1], short=values(6))
    found = climbed(memory, reference, candidate, by=TINY)
    assert (found.kind, found.rule) == ("diverged", "probe")
    assert found.reason.startswith("toy short: shape [1, 6]")


@pytest.mark.usefixtures("toy")
def test_an_added_signal_of_the_same_bytes_lets_the_logits_round(memory, pair):
    both = [with_toy(memory, side, short=values(1, 6)) for side in pair]
    assert climbed(memory, *both, by=TINY).kind == "rounding"


def test_tokens_that_differ_without_a_judged_split_do_not_round(memory, pair):
    before, after = decoded(memory, 1, 2), decoded(memory, 1, 3)
    after = after.model_copy(update={"logits": before.logits, "top2": before.top2})
    reference, candidate = (
        with_signals(side, greedy={"short": greedy})
        for side, greedy in zip(pair, (before, after), strict=True)
    )
    found = climbed(memory, reference, candidate, by=TINY)
    assert (found.kind, found.rule) == ("undecided", "nothing"), found.reason


ALIGNED = "the weights have different alignments in memory"


def aligned(ref, *, off=0, name="short", what="forward short", repeats=True, **more):
    refs = {} if ref is None else {name: ref}
    return Aligned(what=what, off=off, repeats=repeats, refs=refs, **more)


def given(result):
    return () if result is None else (result,)


def with_aligned(memory, pair, one, other, *, by=TINY):
    """Return what is said of the pair where both sides left this of aligned tensors."""
    files = tuple(
        file(stack, own=Rung(), float64=rung(memory, by=far)).model_copy(update={"aligned": left})
        for stack, far, left in (("4.48", 0.0, given(one)), ("5.x", by, given(other)))
    )
    return ladder(*pair, compare(*pair, memory), (), memory, files)


def test_rounding_that_goes_away_with_aligned_tensors_says_so(memory, pair):
    ref = pair[0].signals.forward["short"].logits
    found = with_aligned(memory, pair, aligned(ref), aligned(ref, off=7))
    assert found.kind == "rounding"
    assert found.reason.endswith(
        f"; {ALIGNED}: with every parameter copied to a multiple of 64 bytes, both releases give "
        "the same bytes in the forward over short"
    )
    assert found.alignment == Alignment(what="forward short", off=(0, 7), same=True)


def test_other_bytes_of_aligned_tensors_name_no_alignment(memory, pair):
    one, other = (side.signals.forward["short"].logits for side in pair)
    found = with_aligned(memory, pair, aligned(one, off=3), aligned(other, off=3))
    assert found.alignment == Alignment(what="forward short", off=(3, 3), same=False)
    assert ALIGNED not in found.reason


def test_a_zero_of_another_sign_is_another_byte(memory, pair):
    one, other = (memory.put(np.array([0.0, zero], np.float32)) for zero in (0.0, -0.0))
    found = with_aligned(memory, pair, aligned(one, off=3), aligned(other))
    assert found.alignment.same is False


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"repeats": False}, "this cell: a second forward of the prompt gives different bits"),
        ({"repeats": None, "refused": "MemoryError: no"}, "this cell: MemoryError: no"),
        ({"ref": None}, "one side has no logits for it"),
    ],
)
def test_what_a_state_or_an_exception_may_have_changed_is_not_known(memory, pair, changes, note):
    ref = pair[0].signals.forward["short"].logits
    other = aligned(**({"ref": ref, "off": 7} | changes))
    found = with_aligned(memory, pair, aligned(ref), other)
    assert found.alignment == Alignment(what="forward short", off=(0, 7), same=None, note=note)
    assert ALIGNED not in found.reason


def test_where_nothing_was_moved_nothing_is_said(memory, pair):
    ref = pair[0].signals.forward["short"].logits
    assert with_aligned(memory, pair, aligned(ref), aligned(ref)).alignment is None
    assert with_aligned(memory, pair, None, aligned(ref, off=3)).alignment is None


def test_another_function_is_none_of_alignment(memory, pair):
    ref = pair[0].signals.forward["short"].logits
    found = with_aligned(memory, pair, aligned(ref), aligned(ref, off=7), by=1e-6)
    assert found.kind == "diverged"
    assert ALIGNED not in found.reason


def test_rows_of_padding_play_no_part_in_what_aligned_tensors_give(memory):
    logits = values(2, 3, 8, seed=5)
    other = logits.copy()
    other[0, 0] += 1
    padded = forward(memory, ids=np.ones((2, 3)), logits=logits, real_rows=((1, 3), (0, 3)))
    sides = [
        sound(memory, stack, forward={"padded": padded}, greedy=None) for stack in ("4.48", "5.x")
    ]
    for changed, same in ((other, True), (logits + np.float32(1), False)):
        left = [
            aligned(memory.put(array), off=1, name="padded", what="forward padded")
            for array in (logits, changed)
        ]
        files = tuple(file("5.x").model_copy(update={"aligned": (one,)}) for one in left)
        found = alignment(Climb(Pair(*sides, memory), files))
        assert found.same is same


def prompted(memory, stack, **logits):
    """Return a capture of three prompts, the first of which is padded."""
    lengths = {"padded": 2, "long": 9, "short": 4}
    made = {}
    for name, n in lengths.items():
        rows = ((0, 1),) if name == "padded" else None
        array = values(1, n, 8, seed=n) + np.float32(logits.get(name, 0.0))
        made[name] = forward(memory, ids=np.ones((1, n)), logits=array, real_rows=rows)
    return sound(memory, stack, forward=made, greedy=None)


@pytest.mark.parametrize(
    ("differing", "what"),
    [
        (("long",), "forward long"),
        (("long", "short"), "forward short"),
        (("padded", "long", "short"), "forward short"),
        (("padded",), "forward padded"),
        ((), ""),
    ],
)
def test_the_shortest_prompt_that_differs_is_computed_again(memory, differing, what):
    one = prompted(memory, "4.48")
    other = prompted(memory, "5.x", **dict.fromkeys(differing, 1e-3))
    assert to_align(one, compare(one, other, memory)) == what


def test_a_decode_is_computed_again_only_where_no_forward_differs(memory):
    def side(stack, logits, by):
        steps = step_logits(3, 5, 7)
        greedy = {"short": decoded(memory, 3, 5, 7, logits=steps + np.float32(by))}
        made = {"short": forward(memory, logits=logits)}
        return sound(memory, stack, forward=made, greedy=greedy)

    one = side("4.48", LOGITS, 0.0)
    for logits, what in ((LOGITS, "decode short"), (LOGITS + np.float32(1), "forward short")):
        other = side("5.x", logits, 1e-4)
        assert to_align(one, compare(one, other, memory)) == what
    for both in asks(one, other, compare(one, other, memory), memory):
        assert both.again == ("forward short",)


def test_a_device_is_not_asked_to_align(memory):
    one, other = prompted(memory, "4.48"), prompted(memory, "5.x", short=1e-3)
    signals = compare(one, other, memory)
    variant = one.cell.variant.model_copy(update={"device": "cuda"})
    one = one.model_copy(update={"cell": one.cell.model_copy(update={"variant": variant})})
    assert to_align(one, signals) == ""


def test_what_stays_in_float64_is_diverged_however_small(memory, pair):
    found = climbed(memory, *pair, by=1e-6)
    assert (found.kind, found.rule) == ("diverged", "slope")
    assert "1e-06" in found.reason


def test_what_float64_leaves_a_part_of_is_undecided(memory, pair):
    found = climbed(memory, *pair, by=1e-8)
    assert (found.kind, found.rule) == ("undecided", "nothing")


@pytest.mark.parametrize("by", [TINY, 1e-6])
def test_a_cell_whose_logits_come_out_otherwise_on_the_ladder_proves_nothing(memory, pair, by):
    def own(ref):
        return Rung(forward={"short": RungForward(logits=ref, hidden_states=())})

    again = own(pair[1].signals.forward["short"].logits)
    assert climbed(memory, *pair, by=by, own=(Rung(), again)).kind != "undecided"
    found = climbed(memory, *pair, by=by, own=(Rung(), own(memory.put(LOGITS * 2))))
    assert (found.kind, found.rule) == ("undecided", "nothing")
    assert found.reason == "this cell: the logits are not those of the first run: short"


@pytest.mark.parametrize(("off", "kind"), [(1e-7, "diverged"), (1e-3, "undecided")])
def test_logits_that_come_near_those_of_the_first_run_speak_for_it(memory, off, kind):
    """4.51 takes a spectral norm in ConvNeXt V2, and LAPACK rounds it otherwise while it is watched."""
    first = LOGITS + np.float32(0.2)
    one, other = capture(memory, "4.48"), capture(memory, "5.x", logits=first)
    again = memory.put(first + np.float32(off))
    own = Rung(forward={"short": RungForward(logits=again, hidden_states=())})
    found = climbed(memory, one, other, by=0.2, own=(Rung(), own))
    assert found.kind == kind
    assert found.notes == ("this cell: the logits are not those of the first run: short",)


def apart_by(size, *, same=False, finite=True):
    return Distance(size, same_values=same, finite_alike=finite)


@pytest.mark.parametrize(
    ("high", "kind"),
    [
        (SHRUNK, "rounding"),
        (SHRUNK * 1.01, "undecided"),
        (KEPT * 0.99, "undecided"),
        (KEPT, "diverged"),
        (100.0, "diverged"),
    ],
)
def test_both_limits_are_those_of_the_relations(high, kind):
    assert verdict(apart_by(1.0), apart_by(1.0), apart_by(high), [], [])[0] == kind


def test_the_float32_rung_is_what_float64_is_laid_beside_and_not_the_variants_own():
    own, low = apart_by(1.0), apart_by(1e-4)
    assert verdict(own, low, apart_by(1e-5), [], [])[0] == "undecided"
    assert verdict(own, low, apart_by(5e-5), [], [])[0] == "diverged"
    assert verdict(own, low, apart_by(1e-13), [], [])[0] == "rounding"


@pytest.mark.parametrize(
    ("high", "kind"),
    [
        (SHRUNK * 2.0**-15, "rounding"),
        (SHRUNK * 2.0**-15 * 1.01, "undecided"),
        (KEPT * 0.99, "undecided"),
        (KEPT, "diverged"),
    ],
)
def test_without_float32_a_difference_in_bfloat16_must_shrink_by_both_roundings(high, kind):
    assert verdict(apart_by(1.0), None, apart_by(high), [], [], "bfloat16")[0] == kind


def test_equal_bits_without_float32_are_judged_by_the_rounding_of_their_own_dtype():
    own, errors = apart_by(0.0, same=True), [apart_by(1e-2), apart_by(1e-2)]
    for high, kind in ((0.0, "same"), (1e-14, "same"), (1e-6, "undecided"), (1e-2, "undecided")):
        assert verdict(own, None, apart_by(high), errors, [], "bfloat16")[0] == kind


def test_bits_that_are_equal_in_the_own_dtype_may_hide_another_function():
    own = apart_by(0.0, same=True)
    errors = [apart_by(1e-6), apart_by(1e-6)]
    assert verdict(own, own, apart_by(0.0), errors, [])[0] == "same"
    assert verdict(own, own, apart_by(1e-15), errors, [])[0] == "same"
    assert verdict(own, apart_by(1e-6), apart_by(1e-6), errors, [])[0] == "diverged"


def test_what_float64_alone_shows_may_be_a_rounded_constant_and_proves_nothing():
    """gemma's embedding scale: a float32 buffer in 5.23, computed in forward before."""
    own = apart_by(0.0, same=True)
    errors = [apart_by(1e-6), apart_by(1e-6)]
    assert verdict(own, own, apart_by(1e-6), errors, [])[0] == "undecided"


def test_signs_of_zero_alone_are_no_rounding():
    zeros = apart_by(0.0)
    assert verdict(zeros, zeros, zeros, [], [])[0] == "undecided"
    assert verdict(zeros, zeros, apart_by(0.0, same=True), [], [])[0] == "rounding"


def test_nan_on_one_side_is_diverged_whatever_float64_says(memory):
    logits = LOGITS.copy()
    logits[0, 2, 3] = np.nan
    one, other = capture(memory, "4.48"), capture(memory, "5.x", logits=logits)
    found = climbed(memory, one, other, by=TINY)
    assert (found.kind, found.rule) == ("diverged", "not finite")


def test_without_float64_noise_decides_if_it_is_large_enough(memory, pair):
    for noise, kind in ((2e-6, "rounding"), (1e-8, "undecided")):
        files = tuple(
            file(
                stack,
                own=own_rung(one),
                noise=rung(memory, by=by + noise),
                float64=Rung(refused={"forward short": "NotImplementedError: no float64"}),
            )
            for stack, by, one in zip(("4.48", "5.x"), (0.0, 1e-6), pair, strict=True)
        )
        found = ladder(*pair, compare(*pair, memory), (), memory, files)
        assert found.kind == kind
        assert found.rule == ("self-noise" if kind == "rounding" else "nothing")
        assert any("no float64" in note for note in found.notes)
        assert "goes away in float64" not in found.reason


def test_what_was_not_climbed_is_undecided_with_its_reason(memory, pair):
    signals = compare(*pair, memory)
    assert ladder(*pair, signals, (), memory, None).kind == "undecided"
    failed = LadderFile.model_validate(
        {
            "cell": cell_id("5.x"),
            "failure": {"phase": "load", "type": "ValueError", "message": "no", "traceback": ""},
        }
    )
    found = ladder(*pair, signals, (), memory, (file("4.48"), failed))
    assert found.kind == "undecided"
    assert "this cell failed in the float64 check: ValueError: no" in found.reason
    short = {
        "phase": "memory",
        "type": "not asked",
        "message": "no room: --jobs 1",
        "traceback": "",
    }
    left_out = failed.model_copy(update={"failure": Failure.model_validate(short)})
    found = ladder(*pair, signals, (), memory, (file("4.48"), left_out))
    assert found.kind == "undecided"
    assert "the float64 check was not run for this cell: no room: --jobs 1" in found.reason


def test_a_prompt_that_float64_did_not_see_keeps_the_rest_from_passing(memory, pair):
    files = (file("4.48", float64=rung(memory)), file("5.x", float64=Rung()))
    found = ladder(*pair, compare(*pair, memory), (), memory, files)
    assert found.kind == "undecided"


def test_less_than_float64_somewhere_proves_no_divergence_and_still_shows_rounding(memory, pair):
    assert climbed(memory, *pair, by=1e-6, leaks=("aten::silu",)).kind == "undecided"
    assert climbed(memory, *pair, by=TINY, leaks=("aten::silu",)).kind == "rounding"


def test_one_ulp_of_a_stored_frequency_is_diverged_whatever_is_computed(memory):
    freq = values(8, seed=5)
    ulp = freq.copy()
    ulp[3] = np.nextafter(ulp[3], np.float32(9))
    one = capture(memory, "4.48", inv_freq={"rotary.inv_freq": frequencies(memory, freq)})
    other = capture(
        memory,
        "5.x",
        logits=LOGITS + np.float32(1e-6),
        inv_freq={"rotary.inv_freq": frequencies(memory, ulp)},
    )
    found = climbed(memory, one, other, by=TINY)
    assert (found.kind, found.rule) == ("diverged", "stored constant")
    same = capture(memory, "5.x", logits=LOGITS + np.float32(1e-6), inv_freq=one.signals.inv_freq)
    assert climbed(memory, one, same, by=TINY).kind == "rounding"


def test_a_weight_that_is_the_others_cast_is_a_policy_and_the_coarser_side_is_worse(memory):
    coarse = WEIGHT.astype(bfloat16)
    tensors = {"w": weight(memory, coarse, "w", stored=True)}
    one = capture(memory, "4.48")
    other = capture(memory, "5.x", logits=LOGITS + np.float32(1e-3), tensors=tensors)
    found = climbed(memory, one, other, by=TINY)
    assert (found.kind, found.rule) == ("rounding", "dtype policy"), found.reason
    assert (found.worse, found.worse_ratio) == ("candidate", None)
    asked = asks(one, other, compare(one, other, memory), memory)
    assert [ask.rounded for ask in asked] == [{"w": "bfloat16"}, {}]


def test_a_weight_in_another_dtype_that_is_no_cast_is_diverged(memory):
    coarse = WEIGHT.astype(bfloat16)
    coarse[0, 0] *= 2
    tensors = {"w": weight(memory, coarse, "w", stored=True)}
    other = capture(memory, "5.x", logits=LOGITS + np.float32(1e-3), tensors=tensors)
    assert climbed(memory, capture(memory, "4.48"), other, by=TINY).rule == "stored constant"


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (WEIGHT, WEIGHT.astype(bfloat16), ("cast", "candidate")),
        (WEIGHT.astype(bfloat16), WEIGHT, ("cast", "reference")),
        (WEIGHT.astype(bfloat16), WEIGHT.astype(bfloat16).astype(np.float32), ("cast", None)),
        (WEIGHT, (WEIGHT * 1.1).astype(bfloat16), ("changed", None)),
        (WEIGHT, WEIGHT.astype(np.float16)[:2], ("changed", None)),
    ],
)
def test_casts(memory, one, other, kind):
    assert cast_between(memory.put(one), memory.put(other), memory) == kind


def test_a_cast_without_values_is_not_known(memory):
    other = memory.put(WEIGHT.astype(np.float16), stored=False)
    assert cast_between(memory.put(WEIGHT), other, memory)[0] == "not known"


def test_other_inputs_are_diverged_and_climb_nothing(memory):
    one = capture(memory, "4.48")
    other = capture(memory, "5.x", ids=np.arange(1, 7).reshape(1, 6))
    signals = compare(one, other, memory)
    assert asks(one, other, signals, memory) is None
    assert ladder(one, other, signals, (), memory, None).rule == "inputs"


def test_a_buffer_that_changed_is_diverged(memory):
    one = capture(memory, "4.48", buffers={"scale": buffer(memory, WEIGHT)})
    other = capture(
        memory,
        "5.x",
        logits=LOGITS + np.float32(1e-6),
        buffers={"scale": buffer(memory, WEIGHT + np.float32(1))},
    )
    assert climbed(memory, one, other, by=TINY).rule == "stored constant"


def test_what_could_not_be_compared_keeps_the_rest_from_passing(memory, pair):
    one, other = pair
    without = other.model_copy(update={"skips": ()})
    assert climbed(memory, one, other, by=TINY).kind == "rounding"
    found = climbed(memory, one, without, by=TINY)
    assert found.kind == "undecided"
    assert "could not be compared" in found.reason


def test_numbers_that_are_the_same_in_float32_are_cast_at_other_places():
    subject = Subject(prompt="short")
    told = {"signal": "logits", "subject": subject, "own": 0.1, "float64": 0.0, "kind": "rounding"}
    casts, sums = (LadderStep(**told, float32=size) for size in (0.0, 1e-6))
    assert "cast at different places" in judgement(Evidence((), steps=(casts,))).reason
    assert "cast at different places" not in judgement(Evidence((), steps=(casts, sums))).reason


# --- tokens ----------------------------------------------------------------------------------


def split_pair(memory, margin, *, drift=1e-6):
    """Return two captures whose tokens part at step 1, where the reference's margin is given."""
    logits = np.zeros((2, 16), np.float32)
    logits[0, 3], logits[1, 5], logits[1, 6] = 2, margin, 0.0
    moved = logits.copy()
    moved[1, 5] -= np.float32(drift)
    moved[1, 6] += np.float32(drift)
    mine = decoded(memory, 3, 5, logits=logits).model_copy(
        update={"top2": (((3, 2.0), (0, 0.0)), ((5, margin), (6, 0.0)))}
    )
    theirs = decoded(memory, 3, 6, logits=moved).model_copy(
        update={"top2": (((3, 2.0), (0, 0.0)), ((6, drift), (5, margin - drift)))}
    )
    one = capture(memory, "4.48", greedy={"short": mine})
    other = capture(memory, "5.x", greedy={"short": theirs})
    return one, other, logits, moved


def judged_split(memory, margin, **more):
    one, other, logits, moved = split_pair(memory, margin, **more)
    own = own_rung(one, short=memory.put(logits)), own_rung(other, short=memory.put(moved))
    exact = logits.astype(np.float64)
    found = result(other.cell, (other, other), (one, one), memory)
    return climbed(
        memory, one, other, by=0.0, own=own, splits=found.splits, decode={"short": exact}
    )


def test_a_split_within_the_drift_is_a_near_tie(memory):
    found = judged_split(memory, 1e-6)
    assert found.kind == "rounding", found.reason
    (split,) = found.splits
    assert split.near_tie
    assert [risk.steps for risk in found.at_risk] == [(1,)]


def test_a_split_beyond_the_drift_does_not_pass_as_rounding(memory):
    found = judged_split(memory, 0.5)
    assert (found.kind, found.rule) == ("diverged", "tokens"), found.reason
    assert not found.splits[0].near_tie
    assert [risk.steps for risk in found.at_risk] == [()]


def test_an_end_on_one_side_alone_is_no_near_tie(memory):
    one = capture(memory, "4.48", greedy={"short": decoded(memory, 3, 5)})
    ended = decoded(memory, 3, logits=step_logits(3, 5)[:1])
    other = capture(memory, "5.x", greedy={"short": ended})
    found = result(other.cell, (other, other), (one, one), memory)
    said = climbed(memory, one, other, by=0.0, splits=found.splits)
    assert said.splits[0].near_tie is False
    assert said.kind != "rounding"


# --- discrete choices ------------------------------------------------------------------------


def choice(memory, chosen, scores=None, margin=1e-7):
    scores = np.zeros((6, 4)) if scores is None else scores
    return Choice(
        op="topk",
        scores=memory.put(scores),
        chosen=memory.put(np.asarray(chosen, np.int64).reshape(6, 1)),
        margin=memory.put(np.full(6, margin)),
    )


def flipped(memory, pair, exact=(None, None)):
    taken, other = [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]
    scores = np.zeros((6, 4)), np.full((6, 4), 1e-7)
    files = tuple(
        file(
            stack,
            own=own_rung(one, (choice(memory, took, had),)),
            float64=rung(memory, by=by, choices=(choice(memory, taken, high),)),
        )
        for stack, one, took, had, high, by in zip(
            ("4.48", "5.x"), pair, (taken, other), scores, exact, (0.0, TINY), strict=True
        )
    )
    return ladder(*pair, compare(*pair, memory), (), memory, files)


def test_a_choice_that_flips_is_named_with_its_margin_and_is_rounding(memory, pair):
    found = flipped(memory, pair)
    (flip,) = found.flips
    assert (flip.choice, flip.rows, flip.margin, flip.in_float64) == ("topk 0", 1, 1e-7, False)
    assert found.kind == "rounding"
    assert "flip" in found.reason


def test_a_choice_from_other_scores_is_diverged(memory, pair):
    masked = np.zeros((6, 4))
    masked[2, 3] = -np.inf
    found = flipped(memory, pair, exact=(np.zeros((6, 4)), masked))
    assert (found.kind, found.rule) == ("diverged", "choice")


def test_sides_that_choose_in_other_ways_are_not_laid_side_by_side(memory, pair):
    files = (
        file("4.48", own=rung(memory, choices=(choice(memory, [0] * 6),))),
        file("5.x", own=rung(memory, choices=())),
    )
    assert flips(Climb(Pair(*pair, memory), files)) == ()


# --- the worse side --------------------------------------------------------------------------


def step(reference, candidate, n=400):
    errors = Errors(n=n, reference=reference, candidate=candidate)
    return ladder_step(float64=0.0, kind="same", errors=errors)


def test_the_side_that_is_clearly_farther_from_its_float64_is_worse():
    assert worse([step(1.0, CLEAR)], ()) == ("candidate", CLEAR)
    assert worse([step(CLEAR, 1.0)], ()) == ("reference", CLEAR)
    assert worse([step(1.0, CLEAR * 0.99)], ()) == (None, None)


def test_of_a_few_elements_any_ratio_is_chance():
    assert worse([step(1.0, 10.0, n=2)], ()) == (None, None)
    assert worse([step(1.0, 10.0, n=4)], ()) == ("candidate", 10.0)


def test_errors_are_counted_where_the_sides_differ(memory):
    own = memory.put(np.array([1.0, 2.0, 3.0])), memory.put(np.array([1.0, 2.0, 4.0]))
    exact = memory.put(np.array([9.0, 2.0, 3.5])), memory.put(np.array([9.0, 2.0, 3.0]))
    assert own_errors(own, exact, memory) == Errors(n=1, reference=0.5, candidate=1.0)


def test_a_distance_counts_finite_elements_and_says_where_the_others_stand():
    one = np.array([1.0, np.inf, np.nan])
    assert array_distance(one, np.array([1.5, np.inf, np.nan])).max_abs == 0.5
    assert array_distance(one, np.array([1.0, np.inf, np.nan])).same_values
    assert not array_distance(one, np.array([1.0, -np.inf, np.nan])).finite_alike
    assert not array_distance(np.array([0.0]), np.array([-0.0])).same_values


# --- the third look --------------------------------------------------------------------------


def looked(memory, pair, files_of):
    runs = {found.cell: (found, found) for found in pair}
    results = [result(found.cell, (found, found), (pair[0], pair[0]), memory) for found in pair]
    asked = []

    async def climb(wanted):
        asked.append(wanted)
        return {cell: [files_of(cell, ask) for ask in asks] for cell, asks in wanted.items()}

    return asyncio.run(judge_by_ladder(results, runs, memory, climb)), asked


def test_what_differs_climbs_and_gets_its_verdict(memory, pair):
    def files_of(cell, _ask):
        return file(cell.stack, float64=rung(memory, by=0.0 if cell.stack == "4.48" else TINY))

    (reference, found), asked = looked(memory, pair, files_of)
    assert (reference.verdict, reference.ladder) == ("reference", None)
    assert (found.verdict, found.judged) == ("rounding", "rounding")
    assert [sorted(map(str, wanted)) for wanted in asked] == [
        ["llama/float32-sdpa@4.48", "llama/float32-sdpa@5.x"]
    ]


def test_what_is_identical_climbs_nothing(memory):
    same = capture(memory, "4.48"), capture(memory, "5.x")
    (_, found), asked = looked(memory, same, None)
    assert found.verdict == "identical"
    assert found.ladder is None
    assert asked == []


@pytest.mark.parametrize(
    ("low", "high", "verdict", "n_asked"),
    [
        (1e-6, 1e-13, "rounding", 1),
        (1e-6, 1e-7, "undecided", 3),
        (1e-6, 5e-7, "diverged", 2),
        (1e-2, 1e-2, "diverged", 1),
    ],
)
def test_the_float32_rung_is_computed_where_float64_alone_leaves_a_step_undecided(
    memory, low, high, verdict, n_asked
):
    far = {"hidden": HIDDEN + np.float32(1e-2), "logits": LOGITS + np.float32(1e-2)}
    sides = (
        capture(memory, "4.48", dtype="bfloat16"),
        capture(memory, "5.x", dtype="bfloat16", **far),
    )

    def files_of(cell, ask):
        sizes = {"float64": high} | ({"float32": low} if ask.float32 else {})
        is_candidate = cell.stack == "5.x"
        rungs = {name: rung(memory, by=size * is_candidate) for name, size in sizes.items()}
        return LadderFile(cell=cell, rungs=rungs)

    (_, found), asked = looked(memory, sides, files_of)
    assert found.verdict == verdict, found.ladder.reason
    assert len(asked) == n_asked
    assert all(step.float32 == pytest.approx(low) for step in found.ladder.steps) or n_asked == 1


def test_a_part_that_float64_leaves_is_looked_at_again_with_exact_tables(memory, pair):
    def files_of(cell, ask):
        left = TINY if ask.tables else 1e-8
        return file(cell.stack, float64=rung(memory, by=0.0 if cell.stack == "4.48" else left))

    (_, found), asked = looked(memory, pair, files_of)
    assert found.verdict == "rounding"
    assert any("computed again" in note for note in found.ladder.notes)
    assert len(asked) == 2


def test_a_part_that_stays_with_exact_tables_keeps_what_was_said(memory, pair):
    def files_of(cell, _ask):
        return file(cell.stack, float64=rung(memory, by=0.0 if cell.stack == "4.48" else 1e-8))

    (_, found), _ = looked(memory, pair, files_of)
    assert found.verdict == "undecided"
    assert found.ladder.rule == "nothing"


@pytest.mark.parametrize(
    ("is_hidden", "left", "with_tables", "verdict", "n_asked"),
    [
        (True, 1e-6, TINY, "rounding", 2),  # Gemma 2 of 5.24 stores the scale of its embeddings
        (True, 1e-6, 1e-6, "diverged", 2),
        (False, 3e-7, TINY, "rounding", 2),
        (False, 1e-6, TINY, "diverged", 1),  # another function: no second job
    ],
)
def test_a_rounded_table_is_no_other_function_where_little_else_differs(
    memory, is_hidden, left, with_tables, verdict, n_asked
):
    moved = np.float32(0.0 if is_hidden else 1e-6)
    candidate = capture(memory, "5.x", hidden=HIDDEN + moved, logits=LOGITS + np.float32(1e-6))

    def files_of(cell, ask):
        by = with_tables if ask.tables else left
        return file(cell.stack, float64=rung(memory, by=0.0 if cell.stack == "4.48" else by))

    (_, found), asked = looked(memory, (capture(memory, "4.48"), candidate), files_of)
    assert (found.verdict, len(asked)) == (verdict, n_asked), found.ladder.reason


@pytest.mark.parametrize(
    ("candidate", "rule"),
    [
        ({"pooler": values(1, 6, seed=9)}, "shape"),
        ({}, "missing output"),
        ({"pooler": values(1, 4, seed=8)}, "nothing"),
    ],
)
def test_an_output_of_another_shape_and_a_missing_one_need_no_rung(memory, candidate, rule):
    reference = with_outputs(memory, sound(memory), pooler=values(1, 4, seed=9))
    run = with_outputs(memory, sound(memory, "5.0"), **candidate)
    judged = judgement(Evidence(compare(reference, run, memory)))
    assert (judged.rule, judged.kind) == (rule, "undecided" if rule == "nothing" else "diverged")


def test_logits_of_another_shape_are_a_change_without_a_rung(memory):
    reference = capture(memory, "4.48", hidden=HIDDEN, logits=LOGITS)
    judged = [
        judgement(
            Evidence(
                compare(reference, capture(memory, "5.x", hidden=HIDDEN, logits=logits), memory)
            )
        )
        for logits in (LOGITS[:, -1:], LOGITS + np.float32(1e-6))
    ]
    assert [(each.rule, each.kind) for each in judged] == [
        ("shape", "diverged"),
        ("nothing", "undecided"),
    ]
    assert [str(d.signal) for d in judged[0].rests_on] == ["logits"]
