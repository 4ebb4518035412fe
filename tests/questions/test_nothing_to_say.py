"""A question that left nothing in a row has no answer, no section, no page and no line of its own."""

import pytest

from samebits.questions import questions
from tests.support.builders import Memory, capture, sound
from tests.support.sample_report import same_everywhere, sample_report

ROW = same_everywhere("m", "float32")
REPORT = sample_report().model_copy(update={"rows": (ROW,)})


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.name)
def test_what_was_not_asked_is_not_mentioned(question):
    assert question.name not in ROW.answers
    shown = [part.of_run(REPORT) for part in (*question.sections, *question.pages)]
    shown += [section.of_rows([ROW], REPORT) for section in question.of_model]
    shown += [line(REPORT) for line in (question.brief, question.limit) if line]
    assert not any(shown)
    assert question.has_details is None or not question.has_details([ROW], REPORT)
    assert question.charts is None or not [*question.charts(ROW)]


@pytest.mark.parametrize("run", [capture(), sound(Memory())], ids=["empty", "sound"])
@pytest.mark.parametrize("question", questions(), ids=lambda question: question.name)
def test_captures_without_its_signal_make_no_answer(question, run):
    assert question.of_captures is None or question.of_captures({"4.48": run}, "4.48") is None
