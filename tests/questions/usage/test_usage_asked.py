from samebits.questions.usage import QUESTION
from samebits.questions.usage.records import UsageOfRow, UsageSignal
from tests.support.builders import capture


def test_a_row_has_what_its_cells_answered():
    answer = UsageSignal(skips={"packed": "forward takes no position_ids"})
    captures = {"4.48": capture("4.48"), "5.0": capture("5.0", usage=answer)}
    assert QUESTION.of_captures(captures, "4.48") == UsageOfRow(stacks={"5.0": answer})
    assert QUESTION.of_captures({"4.48": capture("4.48")}, "4.48") is None
