"""Which cells have their processors asked, and what a row keeps of them."""

import numpy as np

from samebits.questions.processors import QUESTION
from tests.support.builders import Memory, sound
from tests.support.processed import case, signal

PLAIN = signal({"c": case(np.zeros(3, np.float32))})
OTHER = signal({"c": case(np.ones(3, np.float32))})


def of_row(**signals):
    captures = {name: sound(Memory(), name, processors=value) for name, value in signals.items()}
    return QUESTION.of_captures(captures, "b")


def test_a_row_has_what_differs_from_the_reference_and_no_cases():
    answer = of_row(a=OTHER, b=PLAIN, c=PLAIN, d=None)
    assert list(answer.stacks) == ["a", "b", "c"]
    assert all(not p.cases for s in answer.stacks.values() for p in s.parts.values())
    differs = {
        stack: bool(report.parts[0].differences) for stack, report in answer.compared.items()
    }
    assert differs == {"a": True, "c": False}
    assert {report.reference for report in answer.compared.values()} == {"b"}


def test_without_the_reference_s_the_first_stack_is_compared_with():
    answer = of_row(a=PLAIN, b=None, c=OTHER)
    assert {s: report.reference for s, report in answer.compared.items()} == {"c": "a"}
