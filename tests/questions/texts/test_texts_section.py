"""What the report says of tokenizers: where releases part, and of one model all of it."""

from functools import partial

import pytest

from samebits.questions.texts.records import (
    OperationComparison,
    Place,
    TextsOfRow,
    TextsReport,
)
from samebits.questions.texts.section import tokenizers, tokenizers_differ, tokenizers_of
from samebits.records.ids import Verdict
from samebits.records.report import Row
from samebits.records.tokenizer import Encoded
from tests.support.builders import bare_report, cell_id, cell_result, tokenizer

STACKS = ("4.48", "5.x")


signal = partial(tokenizer, special={"bos": 1, "eos": 2}, gives=("input_ids",))


def row(model, **signals):
    cells = tuple(cell_result(cell_id(stack, model), Verdict.REFERENCE) for stack in STACKS)
    told = {stack.replace("v", "").replace("_", "."): s for stack, s in signals.items()}
    return Row(model=model, variant="float32-sdpa", reference="4.48", cells=cells, tokenizers=told)


report = partial(bare_report, STACKS)


def lines(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_only_what_differs_is_told_and_models_alike_share_a_line():
    parted = {"v4_48": signal(), "v5_x": signal(padding_side="right")}
    text = tokenizers(report(row("a", **parted), row("b", **parted)))
    assert "2 models with a tokenizer" in text
    (line,) = lines(text)[2:]
    assert [part in line for part in ("pads on the", "`left`", "`right`", "`a`, `b`")] == [True] * 4
    assert tokenizers_differ([row("a", **parted)])


def test_a_tokenizer_that_is_the_same_everywhere_takes_one_sentence():
    same = row("a", v4_48=signal(), v5_x=signal())
    text = tokenizers(report(same))
    assert lines(text) == []
    assert "The tokenizer behaves the same in all releases." in text
    assert not tokenizers_differ([same])


def test_a_stack_that_did_not_load_it_makes_no_difference():
    alone = row("a", v5_x=signal(padding_side="right"))
    assert lines(tokenizers(report(alone))) == []


def test_a_models_page_has_every_fact():
    text = tokenizers_of([row("a", v4_48=signal(), v5_x=signal(class_name="Other"))], report())
    assert lines(tokenizers_of([row("a", v4_48=signal())], report(row("a")))) != []
    assert text.startswith("## Tokenizer")


def with_texts(n_differ):
    place = Place(case="digits", position=(3,), reference='5 "a|b"', candidate="ends after 3")
    encoding = OperationComparison(
        operation="encode", n_compared=78, n_differ=n_differ, first=place if n_differ else None
    )
    decoding = OperationComparison(operation="decode", n_compared=0, n_differ=0)
    texts = TextsReport(reference="4.48", operations=(encoding, decoding))
    plain = row("a", v4_48=signal(), v5_x=signal())
    return plain.model_copy(update={"answers": {"texts": TextsOfRow(stacks={"5.x": texts})}})


def test_texts_that_differ_are_counted_by_what_they_are_about():
    (line,) = lines(tokenizers(report(with_texts(3))))[2:]
    assert "corpus: encoding" in line
    assert "`same as in 4.48` | `3 of 78 differ`" in line
    assert tokenizers_differ([with_texts(3)])
    assert not tokenizers_differ([with_texts(0)])


def test_a_models_page_names_the_first_difference_of_each_operation():
    text = tokenizers_of([with_texts(3)], report())
    (line,) = (line for line in lines(text) if "encode" in line)
    assert [part in line for part in ("5.x", "3 of 78", "digits, index 3", "ends after 3")] == [
        True
    ] * 4
    assert "decode" not in "".join(line for line in lines(text) if "first" in line)
    assert "differ" not in tokenizers_of([with_texts(0)], report())


@pytest.mark.parametrize(
    ("ids", "bare", "told"),
    [
        ((1, 5, 6), (5, 6), "bos first"),
        ((5, 6, 2), (5, 6), "eos last"),
        ((1, 5, 6, 2), (5, 6), "bos first, eos last"),
        ((9, 5, 6), (5, 6), "9 first"),
        ((5, 6), (5, 6), "nothing"),
        ((1, 7, 6), (5, 6), "other ids"),
    ],
)
def test_what_a_tokenizer_adds_is_named(ids, bare, told):
    texts = {"fixed": Encoded(text="Hello", ids=ids, bare=bare)}
    assert signal(texts=texts).adds == told
    assert signal(texts={}).adds == "not observed"
