"""What the report says of tokenizers: where releases part, and of one model all of it."""

import pytest

from samebits.questions.texts.records import (
    OperationComparison,
    Place,
    TextsOfRow,
    TextsReport,
)
from samebits.questions.texts.section import tokenizers, tokenizers_differ, tokenizers_of
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row, StackReport
from samebits.records.tokenizer import Answer, Encoded, TokenizerSignal
from tests.support.builders import cell_id

STACKS = ("4.48", "5.x")


def signal(**changed):
    told = {
        "class_name": "LlamaTokenizerFast",
        "padding_side": "left",
        "special": {"bos": 1, "eos": 2},
        "texts": {"fixed": Encoded(text="Hello", ids=(1, 5, 6), bare=(5, 6))},
        "gives": ("input_ids",),
        "batch": Answer(raised="TypeError: no list"),
        "methods": {"encode_plus": True},
        "saved_class": "LlamaTokenizer",
        "knows_backend": False,
    }
    return TokenizerSignal(**(told | changed))


def row(model, **signals):
    cells = tuple(
        CellResult(
            cell=cell_id(stack, model),
            reference=None,
            verdict=Verdict.REFERENCE,
            judged=Verdict.REFERENCE,
            figure="",
            headline="",
        )
        for stack in STACKS
    )
    told = {stack.replace("v", "").replace("_", "."): s for stack, s in signals.items()}
    return Row(model=model, variant="float32-sdpa", reference="4.48", cells=cells, tokenizers=told)


def report(*rows):
    return Report(
        samebits="1",
        matrix="matrix.yaml",
        matrix_digest="0",
        started="",
        seconds=1.0,
        command="",
        reference="4.48",
        stacks=tuple(StackReport(id=stack) for stack in STACKS),
        checkpoints=(),
        rows=rows,
        exit_code=0,
    )


def lines(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_models_without_a_tokenizer_have_no_section():
    assert tokenizers(report(row("llama"))) == ""
    assert tokenizers_of([row("llama")], report()) == ""
    assert not tokenizers_differ([row("llama")])


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
