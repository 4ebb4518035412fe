"""What a row's captures say of texts, and where it is told."""

import pytest

from samebits.compare.facts import changes as core_changes
from samebits.compare.facts import with_more
from samebits.questions.texts import QUESTION
from samebits.questions.texts.ask import changes, of_captures, options
from samebits.questions.texts.records import TextsOfRow, TextsSignal
from samebits.records.comparison import FactChange
from tests.support.builders import Memory, cell_id, model_spec, sound, tokenizer
from tests.support.outcomes import outcomes


def observed(*ids, **changed):
    texts = TextsSignal(corpus=outcomes({"encode": {"a": ids}}))
    return {"texts": texts, "tokenizer": tokenizer(**changed)}


def rows_of(**signals):
    return {stack: sound(Memory(), stack, **of_stack) for stack, of_stack in signals.items()}


def test_a_row_has_the_comparison_of_each_stack_with_the_reference():
    answer = of_captures(rows_of(old=observed(1, 2), new=observed(1, 3)), "old")
    assert isinstance(answer, TextsOfRow)
    (report,) = answer.stacks.values()
    assert (list(answer.stacks), report.reference) == (["new"], "old")
    assert [(o.operation, o.n_differ) for o in report.operations] == [("encode", 1)]


@pytest.mark.parametrize("stacks", [{}, {"old": {}}, {"old": {}, "new": observed(1)}])
def test_a_row_without_two_tokenizers_has_no_answer(stacks):
    assert of_captures(rows_of(**stacks), "old") is None


def test_what_changed_of_texts_follows_what_changed_of_the_tokenizer():
    one = sound(Memory(), "4.48", **observed(1, 2))
    other = sound(Memory(), "5.x", **observed(1, 3, padding_side="right"))
    setting = {"settings": (FactChange(what="s", reference=1, candidate=2),)}
    known = core_changes(one, other) | setting
    told = with_more(known, changes(one, other))
    assert [change.what for change in told["tokenizer"]] == ["padding_side", "encode · a"]
    assert list(with_more(setting, changes(one, other))) == ["tokenizer", "settings"]
    assert with_more({}, changes(one, one)) == {}
    assert changes(one, sound(Memory(), "5.x")) == {}


def test_every_level_asks_it():
    assert QUESTION.key.always
    assert options(cell_id(), model_spec()) is not None
