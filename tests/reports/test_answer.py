"""The answer about a model: what changed, since when, which side is wrong, what to do."""

import re

import pytest

from samebits.questions.registry import texts
from samebits.questions.relations.records import RelationsOfRow, RelationsSignal
from samebits.records.capture import UnrunModule
from samebits.records.comparison import (
    Difference,
    FactChange,
    ItemComparison,
    SignalComparison,
)
from samebits.records.finding import Explanation, Finding
from samebits.records.ids import Variant, Verdict
from samebits.records.ladder import Decider, Ladder
from samebits.records.subject import Subject
from samebits.records.trace import Side
from samebits.reports.answer import (
    answer,
    answers,
    faults,
    first_sentences,
    is_quiet,
    of_cell,
    result,
    worst_first,
)
from samebits.reports.document import render
from samebits.reports.formats import github, junit
from samebits.reports.head import head
from samebits.reports.issue import new_issue
from samebits.reports.sections.the_worst import MAX_OF_KIND
from tests.support.builders import cause_in, ladder_step
from tests.support.sample_report import (
    NEVER_WRITTEN,
    cell,
    ended,
    metrics,
    only_rows,
    raised,
    ref,
    relation,
    renamed,
    row,
    with_rows,
)

VARIANT = Variant(dtype="float32", attention="default")
OLD, NEW = "4.57", "5.23"
ROUNDS = NEVER_WRITTEN.model_copy(
    update={"code": "SB601", "kind": "rounding", "remedy": "None is needed."}
)


def of(stack, verdict, **fields):
    extra = {key: fields.pop(key) for key in ("explained_by", "changes") if key in fields}
    made = cell("m", VARIANT, stack, verdict, **fields)
    reference = cell("m", VARIANT, OLD, Verdict.REFERENCE).cell
    other = None if verdict is Verdict.REFERENCE else reference
    return made.model_copy(update={"reference": other} | extra)


def differs(signal, size):
    """Return the comparison of a signal of one prompt that is off by so much."""
    item = ItemComparison(subject=Subject(prompt="short"), outcome="differs", metrics=metrics(size))
    return (
        SignalComparison(signal=signal, outcome="differs", n_items=1, n_differ=1, items=(item,)),
    )


def one(*cells, rules=(NEVER_WRITTEN, ROUNDS), **fields):
    """Return a report of one model: the reference, and these cells."""
    verdicts = {c.cell.stack: c for c in (of(OLD, Verdict.REFERENCE), *cells)}
    made = row("m", VARIANT, verdicts).model_copy(update={"reference": OLD} | fields)
    return ended(with_rows(made, rules=rules))


def step(signal, own, float64, kind="diverged"):
    return ladder_step(own, float64, kind, signal=signal)


def diverged(*steps, stack=NEW, **fields):
    """Return a cell of another function, whose logits differ, with these steps of the ladder."""
    ladder = Ladder(kind="diverged", rule="slope", reason="", steps=steps)
    found = of(stack, Verdict.DIVERGED, **fields)
    return found.model_copy(update={"ladder": ladder, "signals": differs("decode", 16.0)})


# what changed


def test_the_figure_is_never_that_of_what_only_rounds():
    steps = (step("logits", 1e-5, 1e-14, "rounding"), step("decode", 16.0, 16.0))
    assert answer(one(diverged(*steps))).change == (
        "behaviour change (decoding differs by 16, in float64 too)"
    )
    undecided = (step("logits", 1e-5, 1e-8, "undecided"), step("decode", 16.0, 16.0))
    assert answer(one(diverged(*undecided))).change == (
        "behaviour change (decoding differs by 16, in float64 too)"
    )
    mostly = (step("logits", 0.086, 0.0024),)
    assert answer(one(diverged(*mostly))).change == (
        "behaviour change (logits differ by 0.0024 in float64, with rounding by 0.086)"
    )
    both = (step("logits", 4.0, 3.0), step("decode", 6.0, 6.0))
    assert answer(one(diverged(*both))).change == (
        "behaviour change (logits differ by 4, in float64 by 3)"
    )


def test_an_exception_is_named_with_the_step_that_raises():
    failed = of(NEW, Verdict.FAILED, failure=raised("greedy short", "IndexError", "out of range"))
    found = answer(one(failed))
    assert found.change == "IndexError in generate(): out of range"
    assert found.side.why == f"{NEW} raises, {OLD} runs"
    assert found.do == "Stay with transformers 4.57.0"


def test_an_environment_that_cannot_be_built_says_nothing_of_its_release():
    failure = raised("building the environment", "not started", "environment 5.2: it lacks x")
    found = answer(one(of(NEW, Verdict.FAILED, failure=failure)))
    assert (found.side.wrong, found.side.why) == ("", f"not known: nothing ran in {NEW}")
    assert found.do == "Mend what the message names, and run again"
    assert not found.command


def test_a_package_that_the_model_needs_is_named_in_what_to_do():
    needed = texts(["SB318"])
    cell = of(
        NEW,
        Verdict.FAILED,
        failure=raised("load", "ImportError", "Run `pip install one two`"),
        explained_by=tuple(Explanation(code="SB318", where=w, stack=NEW) for w in ("one", "two")),
    )
    found = answer(one(cell, rules=needed))
    assert found.do.startswith(
        "Name what the model needs: samebits check MODEL --package one --package two"
    )


@pytest.mark.parametrize(
    ("phase", "do"), [("forward short", "If forward needs inputs "), ("generate()", "Mend the ")]
)
def test_what_every_release_raises_is_mended_in_the_model_or_its_inputs(phase, do):
    failure = raised(phase, "KeyError", "ends")
    cell = of(OLD, Verdict.FAILED, failure=failure, rest=Verdict.REFERENCE)
    assert answer(one(cell)).do == "No release of this run is known to be right"
    shared = cell.model_copy(update={"shared_failures": (failure,)})
    assert answer(one(shared)).do.startswith(do)


def test_a_defect_that_every_release_has_is_not_said_of_the_reference_alone():
    """A T5 with more decoder layers: the reference has the verdict, and each release raises."""
    failure = raised("greedy short", "IndexError", "list index out of range")
    lacking = (Explanation(code="SB716", where="cache_utils.py:776", stack=OLD),)
    cell = of(OLD, Verdict.FAILED, failure=failure, rest=Verdict.REFERENCE, explained_by=lacking)
    shared = cell.model_copy(update={"shared_failures": (failure,)})
    rules = texts(["SB716"])
    assert answer(one(cell, rules=rules)).side.why.startswith(f"{OLD} raises: the cache has fewer")
    assert answer(one(shared, rules=rules)).side.why.startswith("every release raises: the cache ")


@pytest.mark.parametrize(
    ("phases", "do"),
    [
        (("load", "load"), "Mend the model or its files: no release of this run loads it"),
        (("forward short", "load"), "No release of this run is known to be right"),
    ],
)
def test_files_that_no_release_loads_are_mended_whatever_each_of_them_says(phases, do):
    before, after = (
        of(stack, Verdict.FAILED, failure=raised(phase, "ValueError", f"words of {stack}"))
        for stack, phase in zip((OLD, NEW), phases, strict=True)
    )
    assert answer(one(before, after.model_copy(update={"reference": before.cell}))).do == do


def test_a_reference_that_raises_is_no_release_to_stay_with():
    before, after = (
        of(stack, Verdict.FAILED, failure=raised(phase, "AttributeError", "no x"))
        for stack, phase in ((OLD, "forward short"), (NEW, "load"))
    )
    found = answer(one(before, after.model_copy(update={"reference": before.cell})))
    assert (found.side.wrong, found.side.why) == ("", f"neither: {NEW} raises, and so does {OLD}")
    assert found.do == "No release of this run is known to be right"


def test_a_reference_that_raises_for_one_prompt_is_better_than_a_candidate_that_loads_nothing():
    before, after = (
        of(stack, Verdict.FAILED, rest=rest, failures=(raised(phase, "TypeError", "no x"),))
        for stack, phase, rest in (
            (OLD, "forward padded", Verdict.REFERENCE),
            (NEW, "load", None),
        )
    )
    after = after.model_copy(update={"reference": before.cell})
    found = answer(one(before, after))
    why = f"{NEW} raises before it computes anything, {OLD} in forward padded alone"
    assert (found.side.wrong, found.side.why) == (NEW, why)
    assert found.do == "Stay with transformers 4.57.0"


def test_an_unstable_cell_says_what_the_finding_says_of_it():
    for code, change in (
        ("SB301", "every load gives different numbers"),
        ("SB934", "every forward gives different numbers"),
        ("SB712", "one call changes the next, so the same input gives different numbers"),
    ):
        explanation = Explanation(code=code, where="model.rope_deltas", stack=NEW)
        found = answer(one(of(NEW, Verdict.UNSTABLE, explained_by=(explanation,))))
        assert (found.change, found.where) == (change, "model.rope_deltas")
    found = answer(one(of(NEW, Verdict.UNSTABLE)))
    assert found.change == "two runs of the same release give different numbers"


@pytest.mark.parametrize(
    ("signals", "change"),
    [
        (("buffers",), "a load leaves numbers unwritten, which no output that was compared shows"),
        (("buffers", "logits"), "every load gives different numbers"),
    ],
)
def test_numbers_that_no_output_shows_are_not_said_to_change_the_results(signals, change):
    explanation = Explanation(code="SB301", where="scale", stack=NEW)
    cell = of(NEW, Verdict.UNSTABLE, explained_by=(explanation,), unstable_signals=signals)
    assert answer(one(cell)).change == change


def test_an_exception_stands_behind_what_is_unstable():
    failure = raised("forward special", "AttributeError", "no get_head_mask")
    cell = of(NEW, Verdict.UNSTABLE, unstable_signals=("buffers",), failures=(failure,))
    explanation = Explanation(code="SB301", where="scale", stack=NEW)
    update = {"explained_by": (explanation,)}
    change = "a load leaves numbers unwritten; and AttributeError in forward: no get_head_mask"
    assert answer(one(cell.model_copy(update=update))).change == change
    found = [
        Finding(code=code, where="m.py:7", evidence=(evidence,))
        for code, evidence in (
            ("SB104", "AttributeError in phase forward special: no get_head_mask"),
            ("SB931", "AttributeError: no get_head_mask"),  # of a check
            ("SB401", "save_pretrained: AttributeError"),
        )
    ]
    named = cell.model_copy(update=update | {"findings": tuple(found)})
    assert answer(one(named)).change == f"{change} (SB104)"


@pytest.mark.parametrize(
    ("verdict", "code", "several", "single"),
    [
        (Verdict.UNSTABLE, "SB301", "are wrong", "is wrong"),
        (Verdict.FAILED, "SB318", "raise", "raises"),
    ],
)
def test_every_release_that_fails_in_the_same_way_is_named(verdict, code, several, single):
    cells = [
        of(stack, verdict).model_copy(
            update={"explained_by": (Explanation(code=code, where="w", stack=stack),)}
        )
        for stack in ("5.0", NEW)
    ]
    kind = "crash" if verdict is Verdict.FAILED else "silent"
    rules = (NEVER_WRITTEN.model_copy(update={"code": code, "kind": kind}),)
    assert answer(one(*cells, rules=rules)).side.why.startswith(f"5.0, 5.23 {several}: ")
    assert answer(one(cells[0], rules=rules)).side.why.startswith(f"5.0 {single}: ")


def test_draws_of_transformers_own_code_accuse_nobody():
    def why(place):
        explanation = Explanation(code="SB934", where=place, stack=NEW)
        cell = of(NEW, Verdict.UNSTABLE, explained_by=(explanation,))
        return answer(one(cell, rules=texts(["SB934"]))).side

    stock, own = why("transformers/models/vits/modeling_vits.py:793"), why("modeling_own.py:7")
    assert (stock.wrong, own.wrong) == ("", NEW)
    assert stock.why.startswith("not known: a forward in evaluation mode draws random numbers")
    assert own.why.startswith(f"{NEW} is wrong: ")


@pytest.mark.parametrize(("other", "wrong"), [((), ""), (("SB301",), NEW)])
def test_an_output_that_holds_another_tensor_accuses_no_release(other, wrong):
    """Mixtral 5.6 returns the router's logits where 5.5 returned probabilities: the newer one is right."""
    named = [Explanation(code=code, where="x", stack=NEW) for code in ("SB912", *other)]
    cell = diverged(step("outputs", 4.0, 4.0), explained_by=tuple(named))
    report = one(cell, rules=texts(["SB912", *other]))
    found = answer(report)
    assert found.side.wrong == wrong
    assert found.side.why.startswith("not known: an output keeps its name but") is not bool(other)
    assert "Take the tensor from where it is the same" in found.do
    assert ("Stay with" in found.do) is bool(other)
    assert bool(faults(report.rows[0], report)) is bool(other)


def test_another_default_of_generate_accuses_no_release():
    named = Explanation(code="SB821", where="generation_config: forced_eos_token_id", stack=NEW)
    cell = diverged(step("greedy", 0.0, 0.0), explained_by=(named,))
    found = answer(one(cell, rules=texts(["SB821"])))
    assert found.side.wrong == ""
    assert found.side.why.startswith("not known: generate() has different defaults (SB821, ")
    assert named.where in found.side.why
    assert found.do.startswith("Name the field")


def test_a_checkpoint_that_contradicts_its_config_accuses_no_release():
    tied = Explanation(code="SB406", where="lm_head.weight", stack=OLD)
    cell = diverged(step("logits", 1.0, 1.0), explained_by=(tied,))
    report = one(cell, rules=texts(["SB406"]))
    found = answer(report)
    assert found.side.wrong == ""
    assert found.side.why == "not known: the checkpoint contradicts its config.json (SB406)"
    assert found.do.startswith("Write `tie_word_embeddings: false`")
    assert faults(report.rows[0], report) == {}
    lost = Explanation(code="SB322", where="lm_head.weight", stack=OLD)
    report = one(diverged(step("logits", 1.0, 1.0), explained_by=(lost,)), rules=texts(["SB322"]))
    assert (
        answer(report).side.why
        == "not known: the index of the checkpoint contradicts its shards (SB322)"
    )


# since when


def test_since_when_names_the_last_release_without_it_and_where_it_ends():
    same = of("5.0", Verdict.IDENTICAL)
    found = answer(one(same, diverged(step("logits", 1.0, 1.0), stack="5.1")))
    assert found.since == "since 5.1 (5.0 is the last without it)"
    gone = one(diverged(step("logits", 1.0, 1.0), stack="5.0"), of("5.9", Verdict.IDENTICAL))
    assert answer(gone).since == "since 5.0 (4.57 is the last without it; gone in 5.9)"


def test_what_a_machine_lacks_begins_in_no_release():
    """FP8 weights on a CPU: 4.57 asks for a GPU, and 5.24 does without."""
    lacking = of(OLD, Verdict.NOT_FINISHED, open_reason="this machine has no GPU")
    report = one(lacking, of(NEW, Verdict.REFERENCE))
    assert answer(report).since == ""
    assert answer(one(of("5.0", Verdict.FAILED), of(NEW, Verdict.IDENTICAL))).since


def test_a_release_that_was_not_measured_is_not_said_to_have_it():
    """Between 5.0 and 5.9 lie eight releases, and any of them may be the first."""
    same, later = of("5.0", Verdict.IDENTICAL), of("5.10", Verdict.IDENTICAL)
    found = answer(one(same, diverged(step("logits", 1.0, 1.0), stack="5.9"), later))
    assert found.since == "between 5.0 and 5.9; gone in 5.10"
    assert found.start == found.since
    faulty = Explanation(code="SB301", where="w", stack=OLD)
    fixed = diverged(step("logits", 1.0, 1.0), stack="5.9", explained_by=(faulty,))
    assert answer(one(fixed)).since == f"fixed between {OLD} and 5.9 ({OLD} is wrong)"


def test_releases_with_the_same_defect_of_their_own_are_one_answer():
    """A finding names the release that has it, which is another one in each cell."""
    cells = [
        diverged(
            step("logits", 1.0, 1.0),
            stack=stack,
            explained_by=(Explanation(code="SB301", where="w", stack=stack),),
        )
        for stack in ("5.0", "5.9")
    ]
    (found,) = answers(one(*cells))
    assert found.stacks == ("5.0", "5.9")
    assert found.since == "since 5.0 (4.57 is the last without it)"


def test_a_reference_that_is_wrong_is_fixed_in_the_release_that_differs():
    faulty = Explanation(code="SB301", where="w", stack=OLD)
    found = answer(one(diverged(step("logits", 1.0, 1.0), explained_by=(faulty,))))
    assert found.since == f"fixed between {OLD} and {NEW} ({OLD} is wrong)"


def test_a_cell_has_the_words_of_the_answer_that_it_belongs_to():
    """Since when is that of all releases that differ in the same way, not of the cell alone."""
    cells = [
        of(stack, Verdict.FAILED, failure=raised("load", "ValueError", "no"))
        for stack in ("5.0", NEW)
    ]
    report = one(*cells)
    (found,) = answers(report)
    assert found.since == "since 5.0 (4.57 is the last without it)"
    assert [of_cell(cell, report).since for cell in report.rows[0].cells[1:]] == [found.since] * 2


@pytest.mark.parametrize(("phase", "stays"), [("tokenizer", False), ("generate short", True)])
def test_a_release_that_raises_in_the_same_phase_is_not_recommended(phase, stays):
    """Baichuan's tokenizer loads in neither release, by another exception in each."""

    def in_part(stack, failure):
        fields = {"failure": failure, "failures": (failure,), "rest": Verdict.ROUNDING}
        return of(stack, Verdict.FAILED, **fields)

    old = in_part(OLD, raised(phase, "AttributeError", "no vocab_size"))
    new = in_part(NEW, raised("tokenizer", "TypeError", "a property"))
    named = Explanation(code="SB867", where="x", stack=NEW)
    new = new.model_copy(update={"explained_by": (named,)})
    report = one(old, new, rules=texts(["SB867"]))
    assert ("Stay with" in of_cell(new, report).do) is stays


def test_the_newest_release_that_works_is_recommended():
    """Between the reference and the release that fails others work; one that is wrong itself does not count."""
    works = of("5.0", Verdict.IDENTICAL)
    fails = of(NEW, Verdict.FAILED, failure=raised("load", "ValueError", "no"))
    assert answer(one(works, fails)).do == "Stay with transformers 5.0.0"
    assert answer(one(of("5.0", Verdict.UNDECIDED), fails)).do == f"Stay with transformers {OLD}.0"
    # the reference contradicts itself, and a release that is unstable goes on from there
    unstable = of("5.0", Verdict.UNSTABLE)
    repaired = diverged(step("logits", 1.0, 1.0))
    report = one(unstable, repaired, **relations(_4_57=1.0, _5_23=1e-12))
    assert {found.do for found in answers(report)} == {f"Use transformers {NEW}.0"}


def test_advice_that_names_a_release_says_which_checks_it_fails():
    """recurrent_gemma: the newest release repairs the decode, and pads and splits prompts wrongly."""

    def advised(*broken):
        decode = "full forward = prefill + decode"
        holds = relation(decode, "33", 1e-6, promoted=1e-15)
        fails = tuple(relation(name, "33", 1.0, promoted=1.0) for name in broken)
        stacks = {OLD: (relation(decode, "33", 1.0, promoted=1.0),), NEW: (holds, *fails)}
        asked = {stack: RelationsSignal(relations=made) for stack, made in stacks.items()}
        answers = {"relations": RelationsOfRow(stacks=asked)}
        repaired = diverged(step("decode", 1.0, 1.0))
        return [
            answer(one(cell, answers=answers)).do for cell in (repaired, of(NEW, Verdict.UNSTABLE))
        ]

    check = "the consistency check 'full forward = prefill + decode'"
    old = f"Stay with transformers {OLD}.0 (but it fails {check})"
    checks = "3 consistency checks, such as 'left padding'"
    advice = f"Use transformers {NEW}.0"
    assert advised("left padding", "batch size", "causality") == [
        f"{advice} (but it fails {checks})",
        old,
    ]
    assert advised() == [advice, old]
    kept = one(of("5.0", Verdict.IDENTICAL), of(NEW, Verdict.UNDECIDED), **relations(x4_57=1e-15))
    assert answer(kept).do == "Stay with transformers 5.0.0 until you know which side is right"


def test_a_release_is_recommended_only_if_it_works_in_all_variants_of_the_answer():
    half = Variant(dtype="bfloat16", attention="default")
    fails = of(NEW, Verdict.FAILED, failure=raised("load", "ValueError", "no"))
    report = one(of("5.0", Verdict.IDENTICAL), fails)
    cells = (of(OLD, Verdict.REFERENCE), of("5.0", Verdict.UNDECIDED), fails)
    other = row("m", half, {c.cell.stack: c for c in cells})
    both = ended(report.model_copy(update={"rows": (*report.rows, other)}))
    found = next(a for a in answers(both) if a.cell.judged is Verdict.FAILED)
    assert (len(found.variants), found.do) == (2, f"Stay with transformers {OLD}.0")


def test_logits_that_differ_in_one_dtype_are_not_hidden_by_a_form_that_another_shows():
    """Idefics3 of 4.57: with images, float32 differs by 4, and bfloat16 has the same logits."""
    half = Variant(dtype="bfloat16", attention="default")
    form, numbers = diverged(), diverged(step("logits", 4.0, 4.0))
    report = one(numbers)
    half_row = row("m", half, {c.cell.stack: c for c in (of(OLD, Verdict.REFERENCE), form)})
    both = answers(ended(report.model_copy(update={"rows": (half_row, *report.rows)})))
    assert [a.variants for a in both] == [(str(VARIANT),), (str(half),)]
    assert both[0].change == "behaviour change (logits differ by 4, in float64 too)"


# which side


def test_the_defect_says_which_side_is_wrong_and_its_cell_is_marked():
    for stack, mark in ((OLD, "**reference is wrong** (SB301)"), (NEW, "**is wrong** (SB301)")):
        faulty = Explanation(code="SB301", where="w", stack=stack)
        report = one(diverged(step("logits", 1.0, 1.0), explained_by=(faulty,)))
        found = answer(report)
        assert (found.side.wrong, found.side.codes) == (stack, ("SB301",))
        assert found.side.why == f"{stack} is wrong: a buffer is never written (SB301)"
        assert faults(report.rows[0], report) == {stack: ("SB301",)}
        assert mark in render(report)["report.md"]
    clean = one(diverged(step("logits", 1.0, 1.0)))
    assert faults(clean.rows[0], clean) == {}
    assert "is wrong" not in render(clean)["report.md"]
    assert answer(clean).side.why == "not known: no finding or consistency check shows it"


def relations(**broken):
    """Return the relations of a row: stack -> whether prefill + decode is another function."""
    stacks = {
        f"{stack[1:].replace('_', '.')}": RelationsSignal(
            relations=(relation("full forward = prefill + decode", "40", 1.0, promoted=size),)
        )
        for stack, size in broken.items()
    }
    return {"answers": {"relations": RelationsOfRow(stacks=stacks)}}


def cached_ways(old, new):
    """Return the relations of a row: of each stack, the promoted sizes of forward = decode and of verify = decode."""
    names = ("full forward = prefill + decode", "multi-token verify = single-token decode")
    stacks = {
        stack: RelationsSignal(
            relations=tuple(
                relation(name, "40", 1.0, promoted=size)
                for name, size in zip(names, sizes, strict=True)
            )
        )
        for stack, sizes in {OLD: old, NEW: new}.items()
    }
    return {"answers": {"relations": RelationsOfRow(stacks=stacks)}}


def test_a_decode_that_is_no_forward_is_wrong_whatever_agrees_with_it():
    decode = diverged(step("decode", 16.0, 16.0))
    # jamba of 4.54 decodes each token without the ones before, and so does its verify: they agree, and are wrong
    found = answer(one(decode, **cached_ways(old=(1.0, 1e-15), new=(1e-15, 1.0))))
    assert found.side.wrong == OLD
    assert "it breaks 'full forward = prefill + decode', which holds in" in found.side.why
    alone = answer(one(decode, **cached_ways(old=(1e-15, 1e-15), new=(1e-15, 1.0))))
    assert alone.side.wrong == NEW
    both = answer(one(decode, **cached_ways(old=(1.0, 1e-15), new=(1.0, 1.0))))
    assert both.side.wrong == ""


@pytest.mark.parametrize(("item", "words"), [("padded[0]", "padded, row 0"), ("short", "short")])
def test_the_prompt_whose_decoding_differs_is_named(item, words):
    first = Difference(signal="decode", item=item, what="x")
    rounds = of(NEW, Verdict.ROUNDING, figure="decode 2e-06", first=first)
    assert answer(one(rounds)).where == f"decoding of prompt {words}"


def test_checks_that_both_sides_fail_are_counted_where_nothing_says_which_one_is_wrong():
    logits = diverged(step("logits", 6.7, 6.7))
    logits = logits.model_copy(update={"signals": differs("hidden_states", 6.7)})
    none = "not known: no finding or consistency check shows it"
    both = answer(one(logits, **cached_ways(old=(1.0, 1e-15), new=(1.0, 1.0))))
    assert both.side.why == f"{none}; both fail some about other things (1 in {OLD}, 2 in 5.23)"
    alone = answer(one(logits, **cached_ways(old=(1e-15, 1e-15), new=(1.0, 1.0))))
    also = "5.23 alone fails some about other things: 'full forward = prefill + decode' and 1 more"
    assert (alone.side.wrong, alone.side.why) == ("", f"{none}; {also}")
    neither = answer(one(logits, **cached_ways(old=(1e-15, 1e-15), new=(1e-15, 1e-15))))
    assert neither.side.why == none
    right = answer(one(logits, **cached_ways(old=(1e-15, 1e-15), new=(1e-15, 1e-15))))
    assert right.side.why == none


LOST = NEVER_WRITTEN.model_copy(update={"code": "SB704", "name": "decoding differs"})


PADDED = NEVER_WRITTEN.model_copy(update={"code": "SB705", "name": "padding changes rows"})


def half_repaired(*signals, beside=()):
    """Return a report whose reference has two defects: 5.9 repairs one, 5.23 both.

    ``signals`` are those in which 5.9 differs; ``beside`` are defects that explain 5.23 beside SB301.
    """
    one_off = Explanation(code="SB704", where="a cache", stack=OLD)
    codes = ("SB301", *beside)
    last = tuple(Explanation(code=code, where="w", stack=OLD) for code in codes)
    middle = diverged(step("decode", 1.0, 1.0), stack="5.9", explained_by=(one_off,))
    middle = middle.model_copy(update={"signals": signals})
    newest = diverged(step("logits", 1.0, 1.0), step("decode", 2.0, 2.0), explained_by=last)
    own = (*differs("logits", 1.0), *differs("decode", 2.0))
    newest = newest.model_copy(update={"signals": own})
    return one(middle, newest, rules=(NEVER_WRITTEN, LOST, PADDED))


def test_a_release_with_the_defect_of_the_reference_is_marked_and_not_recommended():
    report = half_repaired(*differs("decode", 1.0))
    assert faults(report.rows[0], report) == {OLD: ("SB704", "SB301"), "5.9": ("SB301",)}
    middle, newest = sorted(answers(report), key=lambda found: found.stacks)[::-1]
    assert middle.side.why.endswith(". 5.9 is wrong in another way (SB301)")
    assert middle.do.startswith("Use transformers 5.23.0")
    assert middle.since == f"between {OLD} and 5.9 ({OLD} is wrong in another way)"
    assert "another way" not in newest.side.why
    assert newest.since == f"fixed between 5.9 and {NEW} (5.9 is wrong)"
    clean = half_repaired(*differs("logits", 3.0), *differs("decode", 1.0))
    assert faults(clean.rows[0], clean) == {OLD: ("SB704", "SB301")}
    assert not any("another way (" in found.side.why for found in answers(clean))


def test_of_several_defects_the_one_is_shared_that_alone_explains_what_comes_first():
    """gemma2: SDPA drops the soft-cap until 5.2, and 4.48 has a broken cache, too."""
    report = half_repaired(*differs("decode", 1.0), beside=("SB704",))
    assert faults(report.rows[0], report)["5.9"] == ("SB301",)
    # padding can explain the logits as well, and 5.9 need not have what explains them
    clean = half_repaired(*differs("decode", 1.0), beside=("SB704", "SB705"))
    assert "5.9" not in faults(clean.rows[0], clean)


def test_a_release_after_one_that_is_wrong_in_another_way_repairs_the_reference():
    unstable = of(
        "5.0", Verdict.UNSTABLE, explained_by=(Explanation(code="SB301", where="w", stack="5.0"),)
    )
    decode = diverged(step("decode", 16.0, 16.0))
    report = one(unstable, decode, **relations(x4_57=1.0, x5_23=1e-15))
    found = next(a for a in answers(report) if a.after.startswith(NEW))
    assert found.since == f"fixed between 5.0 and {NEW} (5.0 is wrong in another way)"
    rounds = one(of("5.0", Verdict.UNDECIDED), decode, **relations(x4_57=1.0, x5_23=1e-15))
    found = next(a for a in answers(rounds) if a.after.startswith(NEW))
    assert found.since == f"between 5.0 and {NEW} (something else since 5.0)"


def test_a_difference_that_grows_begins_where_its_first_cause_does():
    """5.0 leaves a buffer unwritten; from 5.9 on generate() raises, too."""

    def unstable(stack, *codes, **fields):
        reasons = tuple(Explanation(code=code, where="w", stack=stack) for code in codes)
        return of(stack, Verdict.UNSTABLE, explained_by=reasons, **fields)

    def newest(*cells):
        report = one(*cells, rules=texts(["SB301", "SB701"]))
        old, new = (stack for stack in report.stacks if stack.id in (OLD, NEW))
        between = [
            old.model_copy(update={"id": name, "transformers": f"{name}.0"})
            for name in ("5.0", "5.2", "5.22")
        ]
        found = answers(report.model_copy(update={"stacks": (old, *between, new)}))
        return next(each for each in found if each.stacks == (NEW,))

    both = unstable(NEW, "SB301", "SB701")
    near = newest(unstable("5.0", "SB301"), both)
    assert near.since == f"since 5.0 (in this form between 5.0 and {NEW})"
    assert near.command == ""  # 4.57 and 5.0 are neighbours
    far = newest(unstable("5.2", "SB301"), both)
    assert far.since == f"between {OLD} and 5.2 (in this form between 5.2 and {NEW})"
    assert far.command.endswith(f"--environments {OLD},5.2")
    # the clean twins: another cause, and a release between that is sound
    other = newest(unstable("5.0", "SB701"), unstable(NEW, "SB301"))
    assert other.since == f"between 5.0 and {NEW} (something else since 5.0)"
    again = newest(unstable("5.0", "SB301"), of("5.22", Verdict.IDENTICAL), both)
    assert again.since == f"since {NEW} (5.22 is the last without it)"


def test_a_release_that_contradicts_itself_is_wrong_if_the_other_does_not():
    decode = diverged(step("decode", 16.0, 16.0))
    found = answer(one(decode, **relations(x4_57=1.0, x5_23=1e-15)))
    assert found.side.wrong == OLD
    assert found.side.why == (
        f"{OLD} is wrong: it breaks 'full forward = prefill + decode', which holds in {NEW}"
    )
    report = one(decode, **relations(x4_57=1.0, x5_23=1e-15))
    assert "**reference is wrong** (consistency check)" in render(report)["report.md"]
    both = answer(one(decode, **relations(x4_57=1.0, x5_23=1.0)))
    neither = answer(one(decode, **relations(x4_57=1e-15, x5_23=1e-15)))
    assert (both.side.wrong, neither.side.wrong) == ("", "")
    assert both.side.why == "not known: both break 'full forward = prefill + decode'"
    assert neither.side.why == "not known: no finding or consistency check shows it"


def test_an_output_of_another_form_accuses_nobody_where_no_other_number_differs():
    """transformers 5.24 returns the image_hidden_states of LLaVA as a tuple of tensors."""
    subject = Subject(prompt="image", tensor="image_hidden_states")
    ladder = Ladder(
        kind="diverged",
        rule="shape",
        reason="",
        steps=(step("logits", 1e-6, 1e-15, "rounding"),),
        rests_on=(Decider(signal="outputs", subject=subject),),
    )
    item = "image · image_hidden_states"
    what = "returned as a list or tuple of 2 tensors instead of one tensor, with the same bytes (and 1 more)"
    first = Difference(signal="outputs", item=item, what=f"outputs: {item}: {what}")
    cell = of(NEW, Verdict.DIVERGED).model_copy(update={"ladder": ladder, "first": first})
    found = answer(one(cell))
    assert found.change == f"outputs of another form (image_hidden_states: {what})"
    assert (found.side.wrong, found.side.why) == (
        "",
        "both: no other number differs but by rounding",
    )
    assert found.do == "Adapt code that reads image_hidden_states, if there is any"
    unused = Finding(code="SB713", where="m.py:7", evidence=("x",))
    text = NEVER_WRITTEN.model_copy(update={"code": "SB713"})
    also = answer(one(cell.model_copy(update={"findings": (unused,)}), rules=(text,)))
    assert also.do == f"{found.do}; beside it: SB713"
    more = ladder.model_copy(update={"steps": (step("hidden_states", 4.0, 4.0),)})
    other = answer(one(cell.model_copy(update={"ladder": more})))
    assert other.change.startswith("behaviour change")
    assert other.side.why.startswith("not known")
    # 5.24 returns another tensor of IDEFICS under that name, with fewer numbers
    item = ItemComparison(
        subject=subject, outcome="differs", reference=ref("a", 1, 17, 24), candidate=ref("b", 1, 24)
    )
    signal = SignalComparison(
        signal="outputs", outcome="differs", n_items=1, n_differ=1, items=(item,)
    )
    lost = answer(one(cell.model_copy(update={"signals": (signal,)})))
    assert lost.side.why.startswith("not known")


def test_a_release_that_alone_differs_is_not_called_wrong_but_the_return_is_told():
    report = one(diverged(stack="5.0"), of(NEW, Verdict.ROUNDING))
    found = answer(report)
    assert found.side.wrong == ""
    assert found.side.why == f"not proven, but {NEW} computes again what {OLD} does"
    lasting = answer(one(diverged(stack="5.0"), diverged(stack=NEW)))
    assert lasting.side.why == "not known: no finding or consistency check shows it"


def test_a_side_that_loads_a_parameter_and_does_not_take_it_is_wrong():
    def why(reference=(), candidate=(), **fields):
        sides = Side(stack=OLD, unread=reference), Side(stack=NEW, unread=candidate)
        cause = cause_in(sides[1], reference=sides[0], **fields)
        return answer(one(diverged().model_copy(update={"cause": cause}))).side.why

    bias = ("head.bias",)
    assert why(candidate=bias) == f"{NEW} is wrong: it loads head.bias and computes without it"
    assert why(reference=bias) == f"{OLD} is wrong: it loads head.bias and computes without it"
    for none in (why(), why(bias, bias), why(candidate=bias, decides=False)):
        assert none.startswith("not known")


def test_a_broken_cache_says_nothing_of_a_forward_that_differs():
    found = diverged(step("logits", 4.0, 4.0)).model_copy(
        update={"signals": differs("logits", 4.0)}
    )
    assert not answer(one(found, **relations(x4_57=1.0, x5_23=1e-15))).side.wrong


def attention(**values):
    """Return the relation of SDPA and eager attention of a row: stack -> values of both, one each."""
    stacks = {
        f"{stack[1:].replace('_', '.')}": RelationsSignal(
            relations=(
                relation(
                    "SDPA = eager attention",
                    "40 tokens",
                    1.0,
                    promoted=abs(sdpa - eager) or 1e-15,
                    values=((sdpa, 2.0), (eager, 2.0)),
                ),
            )
        )
        for stack, (sdpa, eager) in values.items()
    }
    return {"answers": {"relations": RelationsOfRow(stacks=stacks)}}


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        ((1.0, 0.5), (0.5, 0.5), OLD),  # eager attention gives what SDPA gives later
        ((1.0, 0.5), (0.7, 0.7), ""),  # neither of them does
        ((1.0, 0.5), (1.0, 1.0), ""),  # SDPA stays as it is: eager attention was wrong
        ((1.0, 0.5), (0.5, 0.7), ""),
        ((0.5, 0.5), (1.0, 0.5), NEW),
    ],
)
def test_sdpa_is_wrong_where_eager_attention_gives_what_the_other_release_gives(
    before, after, wrong
):
    cell = diverged(step("logits", 4.0, 4.0)).model_copy(update={"signals": differs("logits", 4.0)})
    assert answer(one(cell, **attention(x4_57=before, x5_23=after))).side.wrong == wrong


def test_numbers_of_the_config_that_only_one_release_has_are_named():
    def config(before, now):
        facts = (
            FactChange(what="rope_parameters.rope_theta", reference=before, candidate="absent"),
            FactChange(what="rope_parameters.full.rope_theta", reference="absent", candidate=now),
        )
        return diverged(step("logits", 1.0, 1.0), changes={"config": facts})

    why = answer(one(config(500.0, 500000.0))).side.why
    assert why == (
        "compare with config.json: as loaded, rope_theta is 500000.0 in 5.23, 500.0 in 4.57"
    )
    assert "config.json" not in answer(one(config(500.0, 500.0))).side.why


def test_a_number_of_the_images_is_none_of_the_text():
    facts = (
        FactChange(what="text_config.rope_theta", reference=500.0, candidate="absent"),
        FactChange(what="text_config.rope.rope_theta", reference="absent", candidate=500.0),
        FactChange(what="vision_config.rope.rope_theta", reference="absent", candidate=10000.0),
    )
    report = one(diverged(step("logits", 1.0, 1.0), changes={"config": facts}))
    assert "config.json" not in answer(report).side.why


def test_why_nothing_was_compared_is_said_once():
    alone = one().model_copy(update={"exit_code": 1, "reasons": ("nothing was compared: no pair",)})
    assert sum("nothing was compared" in line for line in head(alone)) == 1


# what to do, and order


def test_rounding_needs_nothing_and_its_remedy_is_no_line_of_what_to_do():
    rounds = Explanation(code="SB601", where="w", stack=NEW)
    found = of(NEW, Verdict.ROUNDING, figure="logits 1e-06", explained_by=(rounds,))
    report = one(found)
    assert (answer(report).do, answer(report).command) == ("Nothing", "")
    text = render(report)["report.md"]
    assert re.search(r"No action needed: SB601 [^;]+\.\n", text)
    assert "None is needed" not in text
    line = re.search(r"\| \[m\]\(models/m.md\) .*", text)[0]
    assert "rounding only (logits 1e-06)" in line
    assert line.rstrip(" |").endswith("Nothing")
    many = render(with_rows(*report.rows, renamed(report.rows[0], model="n"), rules=report.rules))
    links = "[m](models/m.md), [n](models/n.md)"
    assert f"Only rounding, no action needed (2 models): {links}." in many["report.md"]


def test_what_neither_a_verdict_nor_an_exception_shows_is_named_where_the_numbers_only_round():
    """A model that recomputes the whole text does not need the cache that it does not get (SB713)."""
    unused = Finding(code="SB713", where="m.py:7", evidence=("x",))
    text = NEVER_WRITTEN.model_copy(update={"code": "SB713"})

    def shown(reference, candidate):
        before = of(OLD, Verdict.REFERENCE, findings=reference)
        rounds = of(NEW, Verdict.ROUNDING, figure="decode 2e-06", findings=candidate)
        return one(before, rounds, rules=(text,))

    def do(reference, candidate):
        return answer(shown(reference, candidate)).do

    other = renamed(shown((), ()).rows[0], model="n")
    of_two = answers(with_rows(*shown((), (unused,)).rows, other, rules=(text,)))
    assert {each.cell.cell.model: each.do for each in of_two} == {
        "m": "Nothing for what was compared; beside it: SB713",
        "n": "Nothing",
    }

    assert do((), (unused,)) == "Nothing for what was compared; beside it: SB713"
    use = Finding(code="SB931", where="generate()", evidence=(), raises=NEW)
    text = text.model_copy(update={"code": "SB931", "kind": "crash"})
    assert do((), (use,)) == "Nothing for what was compared; beside it: SB931"
    text = text.model_copy(update={"code": "SB713", "kind": "silent"})
    assert do((unused,), (unused,)) == do((unused,), ()) == do((), ()) == "Nothing"


def test_what_a_release_fills_at_random_is_said_beside_what_to_do():
    random = Finding(code="SB304", where="lm_head.weight", evidence=("missing",))
    other = random.model_copy(update={"where": "model.norm.weight"})
    rounds = of(NEW, Verdict.ROUNDING, figure="logits 1e-06", findings=(random, other))
    nothing = (
        "Nothing, if what the checkpoint lacks may be random: lm_head.weight and 1 more (SB304)"
    )
    assert answer(one(rounds)).do == nothing
    reference = of(OLD, Verdict.REFERENCE, findings=(random,))
    kept = answer(
        one(
            reference,
            of(NEW, Verdict.FAILED, failure=raised("greedy short", "IndexError", "out of range")),
        )
    ).do
    assert "Stay with transformers 4.57" in kept
    assert "it draws what the checkpoint lacks at random: lm_head.weight (SB304)" in kept
    assert answer(one(of(NEW, Verdict.ROUNDING, figure="logits 1e-06"))).do == "Nothing"


def test_a_release_to_stay_with_is_not_blamed_for_what_a_later_one_saved():
    """Who stays with 4.x has no tokenizer that 5.x saved."""

    def advised(saver):
        finding = Finding(code="SB877", where="tokenizer", evidence=("x",), saver=saver)
        crash = NEVER_WRITTEN.model_copy(update={"code": "SB877", "kind": "crash"})
        reference = of(OLD, Verdict.REFERENCE, findings=(finding,))
        fails = of(NEW, Verdict.FAILED, failure=raised("load", "ValueError", "no"))
        return answer(one(reference, fails, rules=(NEVER_WRITTEN, ROUNDS, crash))).do

    kept = f"Stay with transformers {OLD}.0"
    assert advised(NEW) == kept
    assert advised(OLD) == f"{kept} (but it raises elsewhere: SB877)"


@pytest.mark.parametrize(("code", "is_a_limit"), [("SB872", False), ("SB869", True)])
def test_a_release_is_not_advised_against_for_what_only_the_step_to_it_meets(code, is_a_limit):
    """Whoever trains in one release alone resumes what that release has saved."""
    finding = Finding(code=code, where="Trainer", evidence=("x",))
    crash = NEVER_WRITTEN.model_copy(update={"code": code, "kind": "crash"})
    newest = of("5.0", Verdict.IDENTICAL, findings=(finding,))
    fails = of(NEW, Verdict.FAILED, failure=raised("load", "ValueError", "no"))
    row = one(of(OLD, Verdict.REFERENCE), fails, newest, rules=(NEVER_WRITTEN, ROUNDS, crash))
    assert ("raises elsewhere" in answer(row).do) is is_a_limit


@pytest.mark.parametrize(
    ("side", "is_blamed"),
    [
        ({"of_reference": True}, True),
        ({"raises": OLD}, True),
        ({"raises": NEW}, False),
        ({}, False),
    ],
)
def test_a_release_to_stay_with_is_blamed_for_its_own_defects_alone(side, is_blamed):
    """A comparison shows a processor that only the reference cannot load at the candidate."""
    finding = Finding(code="SB837", where="processor", evidence=("x",), **side)
    crash = NEVER_WRITTEN.model_copy(update={"code": "SB837", "kind": "crash"})
    fails = of(NEW, Verdict.FAILED, failure=raised("load", "ValueError", "no"), findings=(finding,))
    reference = of(OLD, Verdict.REFERENCE)
    advice = answer(one(reference, fails, rules=(NEVER_WRITTEN, ROUNDS, crash))).do
    limit = " (but it raises elsewhere: SB837)" if is_blamed else ""
    assert advice == f"Stay with transformers {OLD}.0{limit}"


def test_a_page_of_a_model_begins_with_its_answers_as_report_md_has_them():
    rounds = of("5.0", Verdict.ROUNDING, figure="logits 1e-06")
    files = render(one(rounds, diverged(step("logits", 1.0, 1.0))))
    lines = files["models/m.md"].partition("\n| releases")[2].splitlines()[2:4]
    assert [line.split("|")[1].strip() for line in lines] == [NEW, "5.0"]
    for line in lines:
        facts = [cell.strip() for cell in line.split("|")[2:]]
        assert any(
            facts == [cell.strip() for cell in other.split("|")[2:]]
            for other in files["report.md"].splitlines()
        )


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("One `a.b`. Two. Three.", 5, "One `a.b`."),
        ("One `a.b`. Two. Three.", 16, "One `a.b`. Two."),
        ("One `a.b`. Two. Three.", 99, "One `a.b`. Two. Three."),
        ("One. rope_theta is gone.", 9, "One."),  # a name of code begins a sentence, too
        ("One, e.g. two.", 9, "One, e.g. two."),
    ],
)
def test_the_first_sentence_of_a_remedy_is_never_cut(text, limit, kept):
    assert first_sentences(text, limit) == kept


def test_new_and_newest_come_first_and_then_the_worst():
    report = ended(only_rows("mamba", "gemma2", "opensci-ref", "falcon", "llama"))
    found = answers(report)
    order = [(each.model, each.cell.judged) for each in found if not is_quiet(each)]
    assert order[0] == ("falcon", Verdict.FAILED)
    assert order[-1] == ("mamba", Verdict.UNDECIDED)
    assert "llama" not in {model for model, _ in order}
    rows = [each.model for each in worst_first(report.rows)]
    assert rows[0] == "falcon"
    assert rows[-2:] == ["llama", "llama"]


def test_each_model_has_its_worst_answer_before_any_has_a_second_one():
    fails = of("5.0", Verdict.FAILED, failure=raised("load", "ValueError", "no"))
    first = one(fails, of(NEW, Verdict.FAILED, failure=raised("load", "KeyError", "no"))).rows[0]
    second = renamed(one(diverged(step("logits", 1.0, 1.0))).rows[0], model="n")
    report = ended(with_rows(first, second))
    assert [found.model for found in answers(report)] == ["m", "n", "m"]
    assert [line.partition(":")[0] for line in head(report)[2:5]] == ["m", "n", "m"]


def test_what_only_rounds_never_hides_a_known_change():
    rounds = of("5.0", Verdict.ROUNDING, figure="logits 1e-06")
    known = diverged(step("logits", 1.0, 1.0)).model_copy(
        update={"verdict": Verdict.EXPECTED, "expected": ("a reason",)}
    )
    report = one(rounds, known)
    assert [found.stacks for found in answers(report)] == [(NEW,), ("5.0",)]
    assert result(report) == (
        "known: 4.57.0 → 5.23.0: behaviour change (logits differ by 1, in float64 too)"
    )
    assert answer(report).since == f"between 5.0 and {NEW} (5.0 only rounds)"


def test_the_result_of_one_model_is_its_change_and_of_many_their_number():
    same = one(of(NEW, Verdict.IDENTICAL)).model_copy(update={"exit_code": 0})
    assert result(same) == "same bits in every release that has it"
    assert result(one(diverged(step("logits", 4.0, 4.0)))) == (
        "4.57.0 → 5.23.0: behaviour change (logits differ by 4, in float64 too)"
    )
    assert result(ended(only_rows("falcon", "llama"))) == "1 model fails; 1 is identical"


def test_a_model_that_one_release_has_is_counted_though_nothing_is_compared():
    same, new = (only_rows(model).rows[0] for model in ("llama", "llama"))
    cells = (
        *(
            c.model_copy(update={"judged": Verdict.ABSENT, "verdict": Verdict.ABSENT})
            for c in new.cells[:-1]
        ),
        new.cells[-1].model_copy(
            update={"judged": Verdict.REFERENCE, "verdict": Verdict.REFERENCE}
        ),
    )
    alone = renamed(new.model_copy(update={"cells": cells}), model="newcomer")
    report = ended(with_rows(same, alone))
    assert result(report) == "1 is identical, 1 is in one release only"
    assert (
        "1 model identical in every release that has it, 1 in one release only:"
        in (render(report)["report.md"])
    )


def test_every_text_about_a_cell_has_the_answer():
    faulty = Explanation(code="SB301", where="w", stack=OLD)
    report = one(diverged(step("logits", 4.0, 4.0), explained_by=(faulty,)))
    texts = (
        junit.render(report)[junit.PATH],
        github.summary(report),
        "\n".join(github.workflow_commands(report)),
        new_issue(report).body,
        render(report)["report.md"],
    )
    for text in texts:
        assert "logits differ by 4, in float64 too" in text
        assert "4.57 is wrong: a buffer is never written (SB301)" in text


def reworded(row, n):
    """Return a row with words of its own, as others are joined into one line."""
    failures = [c.failure and c.failure.model_copy(update={"message": f"{n}"}) for c in row.cells]
    cells = [
        cell.model_copy(update={"failure": failure, "figure": cell.figure and f"{cell.figure}{n}"})
        for cell, failure in zip(row.cells, failures, strict=True)
    ]
    return row.model_copy(update={"cells": tuple(cells)})


def test_models_about_which_the_same_is_read_are_one_line():
    changed = one(diverged(step("logits", 1.0, 1.0))).rows[0]
    other = one(diverged(step("logits", 2.0, 2.0))).rows[0]
    rows = [renamed(changed, model=f"m{n}") for n in range(5)]
    text = render(ended(with_rows(*rows, renamed(other, model="other"))))["report.md"]
    table = text.partition("## What changed")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if "differ by" in line]
    assert len(lines) == 2
    assert "[m0](models/m0.md), [m1](models/m1.md), [m2](models/m2.md) and 2 more" in lines[0]
    assert "| [other]" in lines[1]


def test_a_remedy_that_leaves_it_to_another_defect_gives_way_to_that_ones():
    """A head that is missing from the file is random, as the release does not tie it."""
    both = tuple(Explanation(code=code, where="w", stack=NEW) for code in ("SB304", "SB404"))
    report = one(diverged(step("logits", 1.0, 1.0), explained_by=both))
    named = report.model_copy(update={"rules": tuple(texts(["SB304", "SB404"]))})
    assert "Or: SB404 (and SB304): Declare _tied_weights_keys as a dict" in answer(named).do
    alone = report.model_copy(update={"rules": tuple(texts(["SB304"]))})
    assert "Compare the names in the file" in answer(alone).do


def test_all_that_a_cell_needs_is_in_what_to_do_and_each_once():
    """A table that is not filled, a lost tie with its consequences, and a method that left the caches."""
    codes = ("SB301", "SB304", "SB404", "SB701")
    reasons = tuple(Explanation(code=code, where="w", stack=NEW) for code in codes)
    failure = raised("greedy short", "AttributeError", "no from_legacy_cache")
    beside = [Finding(code=code, where="w", evidence=("x",)) for code in ("SB401", "SB843")]
    made = of(NEW, Verdict.UNSTABLE, failures=(failure,), findings=tuple(beside))
    rules = texts([*codes, "SB401", "SB843"])
    report = one(made.model_copy(update={"explained_by": reasons}), rules=rules)
    do = answer(report).do
    assert do.startswith("Stay with transformers 4.57.0. Or: SB701: from_legacy_cache: write ")
    assert re.findall(r"(?:; |Or: )(SB\d+[^:]*):", do) == [
        "SB701",
        "SB301",
        "SB404 (and SB304, SB401)",
    ]
    page = render(report)["report.md"]
    to_do = page.partition("## What to do")[2].partition("\n## ")[0]
    assert re.findall(r"^- \*\*(SB\d+)", to_do, re.MULTILINE) == ["SB701", "SB301", "SB404"]
    rest = page.partition("## Beside the verdict")[2].partition("\n## ")[0]
    assert re.findall(r"^- \*\*(SB\d+)", rest, re.MULTILINE) == ["SB843"]


def test_what_raises_beside_wrong_numbers_hides_neither_cause_nor_side():
    failure = raised("greedy short", "AttributeError", "no x")
    made = of(NEW, Verdict.FAILED, failure=failure, failures=(failure,), rest=Verdict.DIVERGED)

    def of_stack(stack):
        reason = Explanation(code="SB404", where="w", stack=stack)
        return answer(
            one(made.model_copy(update={"explained_by": (reason,)}), rules=texts(["SB404"]))
        )

    assert of_stack(NEW).side.wrong == NEW
    assert of_stack(NEW).side.why.startswith(f"{NEW} raises, {OLD} runs. {NEW} is wrong: tensors")
    assert (of_stack(OLD).side.wrong, of_stack(OLD).side.codes) == ("", ("SB404",))


def test_a_defect_beside_the_verdict_is_named_below_the_answer():
    """phi only rounds, and a save of it loses rope_theta: "nothing" to do is half of the answer."""
    row = only_rows("llama").rows[0]
    quiet = render(ended(with_rows(row)))["models/llama.md"]
    assert "Found beside the verdict" not in quiet.partition("\n## ")[0]
    cell = row.cells[-1]
    beside = Finding(code="SB203", where="rope_theta", evidence=("lost",))
    cells = (*row.cells[:-1], cell.model_copy(update={"findings": (beside,)}))
    report = ended(with_rows(row.model_copy(update={"cells": cells})))
    page = render(report.model_copy(update={"rules": tuple(texts(["SB203"]))}))["models/llama.md"]
    assert "Found beside the verdict, see below: SB203" in page.partition("\n## ")[0]


def test_many_failures_leave_room_for_other_kinds_in_the_table():
    falcon, gemma = only_rows("falcon").rows[0], only_rows("gemma2").rows[0]
    rows = [reworded(renamed(falcon, model=f"falcon{n}"), n) for n in range(40)]
    rows += [reworded(renamed(gemma, model=f"gemma{n}"), n) for n in range(40)]
    text = render(ended(with_rows(*rows)))["report.md"]
    table = text.partition("## What changed")[2].partition("\n## ")[0]
    assert MAX_OF_KIND <= table.count("| [gemma") < table.count("| [falcon")
    assert "more differences: [all verdicts]" in table


def test_a_known_failure_says_what_the_matrix_file_says_of_it():
    failure = raised("greedy short", "IndexError", "out of range")
    known = of(NEW, Verdict.FAILED, failure=failure).model_copy(
        update={"verdict": Verdict.EXPECTED, "expected": ("the cache is too short",)}
    )
    found = answer(one(known))
    assert found.is_known
    assert found.side.wrong == NEW
    assert found.side.why == f"{NEW} raises, {OLD} runs. matrix.yaml: the cache is too short"


def known_because(*reasons):
    """Return the answer about a difference that the matrix file lists for reasons, and its report."""
    update = {"verdict": Verdict.EXPECTED, "expected": reasons}
    report = one(diverged(step("logits", 1.0, 1.0)).model_copy(update=update))
    return answer(report), report


def test_a_line_of_the_terminal_keeps_release_and_remedy_and_ends_in_whole_words():
    message = "a list or tuple of 1 tensor instead of one tensor, with the same bytes in it " * 3
    reason = (
        "image_hidden_states has other shapes: one tensor of all images up to 4.48, and others "
    )
    cell = of(NEW, Verdict.FAILED, failure=raised("forward", "ValueError", message))
    update = {"verdict": Verdict.EXPECTED, "expected": (reason * 3,)}
    (line,) = (x for x in head(one(cell.model_copy(update=update))) if x.startswith("m: "))
    assert f"; between {OLD} and {NEW}; {NEW} raises, {OLD} runs. matrix.yaml: image_hid" in line
    assert line.endswith("… To do: Stay with transformers 4.57.0")
    for cut in re.findall(r"([\w.]+)…", line):
        assert cut in [word.strip(",:") for word in f"{message} {reason}".split()]


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        (f"{OLD} is wrong. It ignores the factor.", OLD),
        (f"The factor is read. {NEW} is right: the paper says so.", OLD),
        (f"{OLD}.0 is wrong past the window.", OLD),  # the release of the environment
        (f"{OLD} is right for such input.", NEW),
        ("5.2.0 is wrong. Others read the factor.", ""),  # neither of the two sides
        (f"Nothing tells whether {OLD} is wrong.", ""),
        (f"{OLD} is wrong for one input. {NEW} is wrong for another.", ""),
        ("The factor is ignored.", ""),
    ],
)
def test_a_reason_that_names_the_wrong_side_marks_it_and_no_remedy_contradicts_it(reason, wrong):
    found, report = known_because(reason)
    assert found.side.wrong == wrong
    assert faults(report.rows[0], report) == ({wrong: ("matrix.yaml",)} if wrong else {})
    do = {OLD: f"Use transformers {NEW}.0", NEW: f"Stay with transformers {OLD}.0"}
    assert found.do == do.get(wrong, f"Transformers {OLD}.0 keeps the old numbers")
    assert ("fixed between" in found.since) == (wrong == OLD)


def test_of_several_reasons_each_that_names_a_side_counts():
    first, last = f"{OLD} is wrong if it pads. It repeats.", f"{NEW} is wrong. It has no factor."
    found, report = known_because(first, last)
    assert found.side.why == f"matrix.yaml: {OLD} is wrong if it pads. {NEW} is wrong."
    assert set(faults(report.rows[0], report)) == {OLD, NEW}
    assert found.do == "No release of this run is known to be right"
    found, report = known_because(first, "The norm has groups.")
    assert found.side.why == f"matrix.yaml: {OLD} is wrong if it pads. It repeats."
    assert set(faults(report.rows[0], report)) == {OLD}
    found, _ = known_because("The mask is gone.", "The norm has groups.")
    assert (found.side.wrong, found.side.why) == ("", "matrix.yaml: The norm has groups.")


def test_what_keeps_the_old_numbers_is_the_newest_release_that_has_them():
    update = {"verdict": Verdict.EXPECTED, "expected": ("The factor is ignored.",)}
    known = diverged(step("logits", 1.0, 1.0)).model_copy(update=update)
    rounds = of("5.0", Verdict.ROUNDING, figure="logits 1e-07")
    assert answer(one(rounds, known)).do == "Transformers 5.0.0 keeps the old numbers"


def test_beside_a_release_that_is_right_the_remedy_is_one_sentence():
    faulty = (Explanation(code="SB301", where="w", stack=OLD),)
    text = NEVER_WRITTEN.model_copy(update={"remedy": "Pad nothing. Or use another release."})
    found = answer(one(diverged(step("logits", 1.0, 1.0), explained_by=faulty), rules=(text,)))
    assert found.do == f"Use transformers {NEW}.0. Or: Pad nothing"


def test_what_the_reference_shows_decides_the_remedy_of_its_defect():
    faulty = (Explanation(code="SB405", where="head", stack=OLD),)
    new = diverged(step("logits", 1.0, 1.0), explained_by=faulty)

    def advice(*evidence):
        finding = Finding(code="SB405", where="head", evidence=evidence)
        old = of(OLD, Verdict.REFERENCE).model_copy(update={"findings": (finding,)})
        return answer(one(old, new, rules=texts(["SB405"]))).do

    assert "Write `tie_word_embeddings: false` into config.json" in advice("the tie leaves it out")
    assert "Remove the tensor from the checkpoint" in advice("multiplied by d_model**-0.5")


def test_a_reason_is_shown_in_whole_sentences():
    sentence = (
        "The cache is made from the number of layers of the encoder, whatever the decoder has"
    )
    found, _ = known_because(f"{sentence}. {sentence}, and more. The end.")
    assert found.side.why == f"matrix.yaml: {sentence}."


def test_weights_that_no_prompt_runs_are_named_as_such_and_others_are_not():
    """UDOP's decoder has patches of its own in 5.x, which are random, and no forward takes them."""
    random = (Explanation(code="SB304", where="w", stack=NEW),)

    def why(tensor, ran, extra=()):
        item = ItemComparison(subject=Subject(tensor=tensor), outcome="differs")
        weights = SignalComparison(
            signal="weights", outcome="differs", n_items=1, n_differ=1, items=(item,)
        )
        made = of(NEW, Verdict.DIVERGED, explained_by=random)
        made = made.model_copy(update={"signals": (weights, *extra)})
        unrun = {NEW: (UnrunModule(name=ran, parameters=9),)}
        return answer(one(made, rules=texts(["SB304"]), unrun=unrun)).side.why

    said = ", but no prompt runs what differs"
    assert why("decoder.patches.weight", "decoder.patches").endswith(said)
    assert said not in why("decoder.patches.weight", "decoder.patch")
    assert said not in why("head.weight", "decoder.patches")
    assert said not in why("decoder.patches.weight", "decoder.patches", differs("logits", 1.0))
