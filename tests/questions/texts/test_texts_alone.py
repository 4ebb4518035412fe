"""The verdict on a folder with a tokenizer and no model."""

import pytest

from samebits.diagnose.bands import bands_in_words
from samebits.diagnose.exit_code import exit_code
from samebits.questions.texts.alone import alone
from samebits.questions.texts.ask import of_captures
from samebits.questions.texts.records import TextsSignal
from samebits.records.ids import Verdict
from samebits.records.report import Row, StackReport
from samebits.reports.answer import same
from tests.support.builders import Memory, bare_report, cell_id, cell_result, sound, tokenizer
from tests.support.outcomes import outcomes

IDS = {"a": [1], "b": [2, 3], "c": [4]}


def observed(ids=IDS, **others):
    return TextsSignal(corpus=outcomes({"encode": ids, **others}))


def judged(reference, candidate, **fields):
    """Return the cell of a folder without a model."""
    of_stacks = {"4.48": reference, "5.0": candidate}
    captures = {
        stack: sound(Memory(), stack, texts=each, tokenizer=tokenizer())
        for stack, each in of_stacks.items()
    }
    row = of_captures(captures, "4.48")
    answers = {"texts": row} if row is not None else {}
    cell = cell_result(cell_id("5.0"), Verdict.NOT_OBSERVED, reference=cell_id("4.48"), **fields)
    return alone(cell, answers)


def exit_of(cell):
    return exit_code([cell], (), [StackReport(id="5.0", transformers="5.0")])[0]


def test_the_same_ids_everywhere_are_identical_and_say_that_no_model_is_there():
    cell = judged(observed(), observed())
    assert (cell.judged, exit_of(cell)) == (Verdict.IDENTICAL, 0)
    assert cell.headline == "a tokenizer without a model: the same ids for 3 texts"
    row = Row(model="m", variant="v", reference="4.48", cells=(cell,))
    report = bare_report(["4.48", "5.0"], row)
    assert same(report) == cell.headline


def test_other_ids_are_a_behaviour_change_with_the_first_text():
    cell = judged(observed(), observed(IDS | {"b": [2, 7]}))
    assert (cell.verdict, cell.judged, exit_of(cell)) == (*[Verdict.DIVERGED] * 2, 1)
    assert cell.figure == "1 of 3 texts"
    assert cell.first.item == "b"
    assert "other ids for 1 of 3 texts, first b, index 1: 3 \N{RIGHTWARDS ARROW} 7" in cell.headline


def test_what_else_differs_is_a_finding_beside_the_same_ids():
    cell = judged(observed(decode={"a": ["x"]}), observed(decode={"a": ["y"]}))
    assert (cell.judged, exit_of(cell)) == (Verdict.IDENTICAL, 0)


@pytest.mark.parametrize("rest", [Verdict.IDENTICAL, Verdict.UNDECIDED])
def test_a_model_without_a_forward_is_not_judged_by_its_texts(rest):
    cell = judged(observed(), observed(IDS | {"b": [2, 7]}), rest=rest)
    assert cell.judged is Verdict.NOT_OBSERVED


def test_a_folder_of_which_no_text_was_compared_stays_as_it_is():
    assert judged(TextsSignal(), TextsSignal()).judged is Verdict.NOT_OBSERVED


def test_its_releases_are_grouped_by_what_they_give():
    reference = cell_result(cell_id("4.48"), Verdict.REFERENCE)
    other = judged(observed(), observed(IDS | {"b": [2, 7]}))
    again = other.model_copy(update={"cell": cell_id("5.1")})
    found = bands_in_words([reference, judged(observed(), observed()), other, again])
    assert [(band.stacks, band.does) for band in found] == [
        (("4.48", "5.0"), "A"),
        (("5.0", "5.1"), "B"),
    ]
