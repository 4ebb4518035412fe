"""What a commit does, as a text to compare."""

import pytest

from samebits.bisect.trials import fault_of
from samebits.records.ids import Verdict
from tests.support.builders import cell_id, cell_result
from tests.support.sample_report import raised


def fault(message, kind="ValueError", phase="forward short"):
    failure = raised(phase, kind, message)
    headline = f"failed in phase {phase}: {kind}: {message}"
    return fault_of(cell_result(cell_id(), Verdict.FAILED, failure=failure, headline=headline))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "object <object object at 0x7f2510a359d0> is wrong",
            "object <object object at 0x7f37f5fa19c0> is wrong",
        ),
        ("5.15.0.dev0 has no x", "5.16.0.dev0 has no x"),
    ],
)
def test_commits_that_raise_the_same_do_the_same(one, other):
    assert fault(one) == fault(other)


def test_another_exception_is_another_state():
    assert fault("x is wrong") != fault("y is wrong")
    assert fault("x is wrong") != fault("x is wrong", kind="TypeError")
    assert fault("x is wrong") != fault("x is wrong", phase="load")
    unstable = cell_result(cell_id(), Verdict.UNSTABLE, headline="it does not repeat itself")
    assert fault_of(unstable) == "unstable: it does not repeat itself"
