"""What one question left in a cell and in its reference: its findings, and a report of a row."""

from samebits.findings.case import Case
from samebits.questions import questions
from samebits.questions.registry import findings
from tests.support.builders import Memory, sound
from tests.support.sample_report import same_everywhere, sample_report


def findings_of(name, before, after):
    """Return code -> finding."""
    case = Case(
        capture=sound(Memory(), "5.x", **{name: after}),
        reference=sound(Memory(), "4.48", **{name: before}),
    )
    return {each.code: each for each in findings(case)}


def report_of(name, *answers):
    """Return a report whose first stacks left these answers."""
    stacks = (stack.id for stack in sample_report().stacks)
    captures = {
        stack: sound(Memory(), stack, **{name: answer})
        for stack, answer in zip(stacks, answers, strict=False)
    }
    (question,) = (question for question in questions() if question.name == name)
    answer = question.of_captures(captures, next(iter(captures)))
    row = same_everywhere("m", "float32").model_copy(update={"answers": {name: answer}})
    return sample_report().model_copy(update={"rows": (row,)})
