"""Which findings explain a verdict: those about the first signal that decides, and about its rows."""

import pytest

from samebits.questions.registry import explained
from samebits.records.capture import Failure
from samebits.records.comparison import Difference, ItemComparison, SignalComparison
from samebits.records.finding import Finding
from samebits.records.ids import Variant, Verdict
from samebits.records.ladder import Decider, Ladder
from samebits.records.subject import Subject
from tests.support.sample_report import cell

VARIANT = Variant(dtype="float32", attention="default")
PLAIN, PADDED = Subject(prompt="short"), Subject(prompt="padded", row=0)


def differing(*deciding):
    """Return a cell whose verdict rests on these signals and subjects."""
    signals = tuple(
        SignalComparison(
            signal=name,
            outcome="differs",
            n_items=1,
            n_differ=1,
            items=(ItemComparison(subject=subject, outcome="differs"),),
        )
        for name, subject in deciding
    )
    rests_on = tuple(Decider(signal=name, subject=subject) for name, subject in reversed(deciding))
    return cell("m", VARIANT, "5.23", Verdict.DIVERGED).model_copy(
        update={
            "signals": signals,
            "first": Difference(signal=deciding[0][0], item="", what=""),
            "ladder": Ladder(kind="diverged", rule="slope", reason="", rests_on=rests_on),
        }
    )


def codes(*deciding, findings):
    """Return the codes that explain a cell whose verdict rests on these signals and subjects."""
    result = explained(differing(*deciding), {"4.48": findings})
    return [explanation.code for explanation in result.explained_by]


def finding(code, **fields):
    return Finding(code=code, where="somewhere", evidence=(), **fields)


CACHE = finding("SB704")


@pytest.mark.parametrize(
    ("deciding", "named"),
    [
        ((("decode", PLAIN),), ["SB704"]),
        ((("decode", PLAIN), ("greedy", PLAIN)), ["SB704"]),
        # a forward that differs makes its decoding differ: mamba2 of 4.57 has other norms and a broken chunked prefill
        ((("logits", PLAIN), ("decode", PLAIN)), []),
    ],
)
def test_a_broken_cache_explains_what_only_decoding_shows(deciding, named):
    assert codes(*deciding, findings=(CACHE,)) == named


@pytest.mark.parametrize(
    ("of_prompts", "subject", "named"),
    [
        (("padded",), PADDED, ["SB705"]),
        (("padded",), PLAIN, []),  # nothing of a prompt of one row is padded
        (None, PLAIN, ["SB705"]),  # a row alone may be what a defect of batches breaks
    ],
)
def test_broken_padding_explains_no_prompt_without_padding(of_prompts, subject, named):
    found = finding("SB705", of_prompts=of_prompts)
    assert codes(("logits", subject), findings=(found,)) == named


@pytest.mark.parametrize(("of_prompts", "named"), [(None, ["SB821"]), ((), [])])
@pytest.mark.parametrize("signal", ["decode", "greedy"])
def test_a_default_of_generate_explains_tokens_unless_the_greedy_decode_names_it(
    of_prompts, named, signal
):
    found = finding("SB821", of_prompts=of_prompts)
    assert codes((signal, PLAIN), findings=(found,)) == named
    assert codes(("logits", PLAIN), (signal, PLAIN), findings=(found,)) == []


def test_a_defect_of_the_reference_that_the_candidate_shows_accuses_the_reference():
    result = differing(("logits", PLAIN))
    for of_reference, stack in ((True, "4.48"), (False, "5.23")):
        defect = finding("SB212", of_reference=of_reference)
        (explanation,) = explained(result, {"5.23": (defect,)}).explained_by
        assert explanation.stack == stack


def test_a_defect_of_the_reference_explains_a_cell_that_tells_of_it_too():
    """4.48 leaves the bias of roberta's head to zeros: it shows that itself, and 4.51 by a parameter for it."""
    bias = Subject(tensor="lm_head.bias")
    result = differing(("weights", bias))
    shown = Finding(code="SB308", where="lm_head.bias", evidence=())
    accusing = shown.model_copy(update={"of_reference": True})
    own = result.cell.stack
    explaining = explained(result, {"4.48": (shown,), own: (accusing,)}).explained_by
    assert {(each.code, each.stack) for each in explaining} == {("SB308", "4.48")}
    # what both have on their own accuses neither
    assert explained(result, {"4.48": (shown,), own: (shown,)}).explained_by == ()


RAISES = Failure(phase="greedy short", type="AttributeError", message="no", traceback="")
NO_METHOD = Finding(code="SB701", where="m.py:7", evidence=("AttributeError in generate: no",))
UNTIED = Finding(code="SB404", where="lm_head.weight", evidence=())
RANDOM = Finding(code="SB304", where="lm_head.weight", evidence=())


def of_weights(verdict, **fields):
    """Return a cell whose weights differ, with another verdict on the whole."""
    name = Subject(tensor="lm_head.weight")
    made = differing(("weights", name))
    first = Difference(signal="weights", item="lm_head.weight", what="")
    return made.model_copy(update={"judged": verdict, "verdict": verdict, "first": first} | fields)


def explaining(result, own, reference=()):
    row = {result.cell.stack: own, result.reference.stack: reference}
    return [explanation.code for explanation in explained(result, row).explained_by]


def test_each_half_of_a_cell_that_raises_and_differs_has_its_cause():
    both = of_weights(Verdict.FAILED, rest=Verdict.DIVERGED, failure=RAISES, failures=(RAISES,))
    assert explaining(both, (UNTIED, NO_METHOD)) == ["SB701", "SB404"]
    # the clean twins: both sides have the defect, the rest only rounds, or nothing raises
    assert explaining(both, (UNTIED, NO_METHOD), (UNTIED,)) == ["SB701"]
    rounds = both.model_copy(update={"rest": Verdict.ROUNDING})
    assert explaining(rounds, (Finding(code="SB601", where="x", evidence=()), NO_METHOD)) == [
        "SB701"
    ]
    assert explaining(of_weights(Verdict.DIVERGED), (UNTIED, NO_METHOD)) == ["SB404"]


def test_an_unstable_cell_has_the_causes_of_what_raises_and_of_its_stored_tensors_too():
    """A buffer that nothing writes, a head that is no longer tied, and a method that left the caches."""
    unwritten = Finding(code="SB301", where="inv_freq", evidence=())
    fields = {"failures": (RAISES,), "unstable_signals": ("inv_freq",)}
    cell_result = of_weights(Verdict.UNSTABLE, **fields)
    own = (unwritten, RANDOM, UNTIED, NO_METHOD)
    assert explaining(cell_result, own) == ["SB301", "SB304", "SB404", "SB701"]
    assert explaining(cell_result, own, (UNTIED,)) == ["SB301", "SB304", "SB701"]
    quiet = cell_result.model_copy(update={"failures": ()})
    assert explaining(quiet, own) == ["SB301", "SB304", "SB404"]
    beside = Finding(code="SB843", where="rows", evidence=())
    assert explaining(quiet, (unwritten, beside)) == ["SB301"]
