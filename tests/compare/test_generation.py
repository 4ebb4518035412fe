"""generate() is accused only where both sides had the same logits."""

import pytest

from samebits.compare.generation import (
    OTHER_DRAW,
    OTHER_LOGITS,
    OTHER_PROMPT,
    ROUNDED,
    TIE,
    generation,
)
from samebits.compare.pair import Pair
from samebits.diagnose.verdict import result
from samebits.ladder.judge import ladder
from samebits.records.generation import GenerationSignal, GenerationStep, GenerationWay
from samebits.records.subject import Reason
from samebits.records.usage import UsageSignal
from tests.support.builders import Memory, cell_id, sound


def way(tokens, fed="abc", logits="abc", scores="abc", top=1.0, **fields):
    """A way whose steps have these hashes; the hash of scores says how large the largest one is."""
    steps = zip(fed, logits, scores or [""] * len(fed), strict=True)
    return GenerationWay(
        tokens=tuple(map(tuple, tokens)),
        steps=tuple(
            GenerationStep(fed=f, logits=x, scores=s, top=((7, top if s == "X" else 1.0),))
            for f, x, s in steps
        ),
        **fields,
    )


GREEDY = way([[1, 2, 3]])


def run(prompt="p", config=None, greedy=GREEDY, **ways):
    ways = {"greedy": greedy} | {name.replace("_", " "): value for name, value in ways.items()}
    signal = GenerationSignal(prompt=prompt, config=config or {}, ways=ways)
    return UsageSignal(generation=signal)


def capture(usage=None, stack="4.48", memory=None):
    made = sound(memory or Memory(), stack)
    return made.model_copy(update={"signals": made.signals.model_copy(update={"usage": usage})})


def compared(reference, candidate):
    return generation(Pair(capture(reference), capture(candidate, "5.0"), Memory()))


def item(reference, candidate, name="beams"):
    (found,) = (i for i in compared(reference, candidate).items if i.name == name)
    return found


def test_nothing_was_tried():
    assert compared(None, None) is None
    one_sided = compared(run(), UsageSignal())
    assert (one_sided.outcome, one_sided.excused) == ("not compared", True)


def test_the_same_tokens_are_identical():
    assert compared(run(beams=way([[4, 5]])), run(beams=way([[4, 5]]))).outcome == "identical"


def test_other_tokens_from_the_same_logits_are_another_function():
    signal = compared(run(beams=way([[4, 5]])), run(beams=way([[4, 6]])))
    assert signal.outcome == "differs"
    (found,) = signal.items
    assert found.reason is Reason.SAME_LOGITS
    assert found.note == (
        "the same logits, and other tokens: row 0 has 5 in the reference and 6 here, as its token 1"
    )


def test_other_tokens_that_are_fed_after_the_same_logits_are_another_function():
    found = item(
        run(beams=way([[4, 5]], fed="abc")), run(beams=way([[4, 7]], fed="abX", logits="abY"))
    )
    assert found.outcome == "differs"


def test_tokens_that_follow_from_other_logits_are_not_judged():
    rounded = way([[4, 7]], logits="aXc", scores="aXc")
    found = item(run(beams=way([[4, 5]])), run(beams=rounded))
    assert (found.outcome, found.note, found.excused) == ("not compared", OTHER_LOGITS, True)
    same = way([[4, 5]], logits="aXc", scores="aXc")
    assert compared(run(beams=way([[4, 5]])), run(beams=same)).outcome == "identical"


def test_other_scores_from_the_same_logits_are_another_processor_whatever_is_chosen():
    found = item(run(beams=way([[4, 5]])), run(beams=way([[4, 5]], scores="aXc", top=1.5)))
    assert found.outcome == "differs"
    assert found.note.startswith("step 1: the same logits, and other scores")


def test_another_draw_from_the_same_distribution_is_said_and_not_judged():
    drawn, other = way([[4, 5]], drew=True), way([[4, 6]], fed="abX", logits="abY", drew=True)
    found = item(run(sampling=drawn), run(sampling=other), "sampling")
    assert (found.outcome, found.note) == ("not compared", OTHER_DRAW)
    planted = way([[4, 6]], scores="aXc", top=1.5, drew=True)
    assert item(run(sampling=drawn), run(sampling=planted), "sampling").outcome == "differs"


def test_scores_that_differ_by_rounding_are_no_other_function():
    rounded = {"scores": "aXc", "top": 1.0 + 2.0**-22}
    clean = run(beams=way([[4, 5]]))
    assert compared(clean, run(beams=way([[4, 5]], **rounded))).outcome == "identical"
    found = item(clean, run(beams=way([[4, 6]], fed="abX", logits="abY", **rounded)))
    assert (found.outcome, found.note) == ("not compared", ROUNDED)
    assert item(clean, run(beams=way([[4, 6]], **rounded))).note == ROUNDED


def test_beams_that_tie_up_to_rounding_may_be_chosen_either_way():
    first = way([[4, 5]], values=(-0.25,))
    tie = way([[4, 6]], values=(-0.25 - 2.0**-25,))
    assert item(run(beams=first), run(beams=tie)).note == TIE
    worse = way([[4, 6]], values=(-0.26,))
    assert item(run(beams=first), run(beams=worse)).outcome == "differs"


@pytest.mark.parametrize("sides", [(True, False), (False, True), (True, True)])
def test_a_refusal_is_named_and_not_judged(sides):
    answers = [
        way([], "", "", "", refused="ValueError: no") if refuses else way([[4, 5]])
        for refuses in sides
    ]
    found = item(run(beams=answers[0]), run(beams=answers[1]))
    assert (found.outcome, found.excused) == ("not compared", True)
    assert "ValueError: no" in found.note


def test_drafts_are_judged_where_the_greedy_tokens_agree():
    draft, other = (way([[1, 2, end]], scores="") for end in (3, 9))
    assert item(run(assistant=draft), run(assistant=other), "assistant").outcome == "differs"
    rounded = run(greedy=way([[1, 2, 9]], logits="abX"), assistant=other)
    found = item(run(assistant=draft), rounded, "assistant")
    assert (found.outcome, found.excused) == ("not compared", True)


def test_another_prompt_is_not_compared():
    assert item(run("p", beams=GREEDY), run("q", beams=GREEDY)).note == OTHER_PROMPT


def test_a_way_of_one_side_alone_says_nothing():
    assert compared(run(end_token=GREEDY), run()).outcome == "identical"


def judged(reference, candidate):
    """Return the verdict without the ladder, and what the ladder makes of it."""
    memory = Memory()
    sides = [
        (capture(usage, stack, memory), sound(memory, stack, run="b"))
        for stack, usage in (("5.0", candidate), ("4.48", reference))
    ]
    cell = result(cell_id("5.0"), *sides, memory)
    if cell.verdict != "undecided":
        return cell, None
    return cell, ladder(sides[1][0], sides[0][0], cell.signals, cell.splits, memory, None)


def test_defaults_that_changed_are_facts_and_no_difference():
    cell, _ = judged(run(config={"top_k": 50, "a": 1}), run(config={"top_k": 40, "b": 2}))
    changes = [(c.what, c.reference, c.candidate) for c in cell.changes["generation"]]
    assert (cell.verdict, changes) == ("identical", [("top_k", 50, 40)])


def test_another_function_of_generate_diverges():
    cell, climbed = judged(run(beams=way([[4, 5]])), run(beams=way([[4, 6]])))
    assert (climbed.kind, climbed.rule) == ("diverged", "generation")
    assert "generate(), beams: the same logits" in climbed.reason
    assert cell.first.what.startswith("generation: beams: the same logits, and other tokens")
    assert cell.figure == "generation 1 of 2"


def test_a_clean_twin_and_a_refusal_are_identical():
    refusing = run(beams=way([], "", "", "", refused="ValueError: no"))
    for candidate in (run(beams=way([[4, 5]])), refusing):
        assert judged(run(beams=way([[4, 5]])), candidate)[0].verdict == "identical"
