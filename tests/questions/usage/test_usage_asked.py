import pytest

from samebits.questions.usage import QUESTION
from samebits.questions.usage.records import UsageOfRow, UsageSignal
from tests.support.builders import capture, cell_id, model_spec


@pytest.mark.parametrize(
    ("cell", "changed", "tried"),
    [
        (cell_id(attention="sdpa"), {}, True),
        (cell_id(attention="eager"), {}, False),
        (cell_id(attention="sdpa"), {"devices": ("cuda", "cpu")}, True),
        (cell_id(attention="sdpa"), {"devices": ("cuda",)}, False),
    ],
)
def test_usage_is_tried_in_the_first_variant_on_the_cpu(cell, changed, tried):
    model = model_spec(**({"attention": ("sdpa", "eager")} | changed))
    assert (QUESTION.options(cell, model) is not None) == tried


def test_a_large_model_itself_is_asked_in_a_deep_run():
    asked = [QUESTION.options(cell_id(), model_spec(large=large)) for large in (False, True)]
    assert [each.large for each in asked] == [False, True]


def test_it_can_be_switched_off():
    assert model_spec().asks("usage")
    assert not model_spec(questions={"usage": False}).asks("usage")


def test_a_row_has_what_its_cells_answered():
    answer = UsageSignal(skips={"packed": "forward takes no position_ids"})
    captures = {"4.48": capture("4.48"), "5.0": capture("5.0", usage=answer)}
    assert QUESTION.of_captures(captures, "4.48") == UsageOfRow(stacks={"5.0": answer})
    assert QUESTION.of_captures({"4.48": capture("4.48")}, "4.48") is None
