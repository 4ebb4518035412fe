"""Moments that one release saves fit the parameters of another one, or it says at which place they do not."""

import pytest

from samebits.questions.trainer.moments import misplaced
from samebits.questions.trainer.records import TrainerRun


def run(*groups):
    """Return a run whose optimizer has these groups of parameters: a name, and its number of rows."""
    order = [[{"name": n, "shape": (int(rows), 4)} for n, rows in group] for group in groups]
    return TrainerRun.model_validate(
        {"received": [], "losses": [], "norms": [], "rates": [], "order": order}
    )


PLAIN = run([("q", 4), ("k", 4), ("v", 4)], [("norm", 1)])


@pytest.mark.parametrize(
    ("other", "subject", "sides"),
    [
        (
            run([("q + k", 8), ("v", 4)], [("norm", 1)]),
            "parameters of the optimizer",
            ("groups of 3, 1", "groups of 2, 1"),
        ),
        (
            run([("q", 4), ("k", 4), ("v", 4), ("norm", 1)], []),
            "parameters of the optimizer",
            ("groups of 3, 1", "groups of 4, 0"),
        ),
        (
            run([("q", 4), ("k", 4), ("v", 8)], [("norm", 1)]),
            "parameters of the optimizer",
            ("v [4, 4]", "v [8, 4]"),
        ),
        (run([("k", 4), ("v", 4), ("q", 4)], [("norm", 1)]), "order of parameters", ("q", "k")),
    ],
)
def test_what_does_not_fit_is_named(other, subject, sides):
    result = misplaced(PLAIN, other, ())
    assert (result.subject, result.reference, result.candidate) == (subject, *sides)


def test_the_same_order_fits_and_so_does_one_with_a_new_name():
    assert misplaced(PLAIN, PLAIN, ()) is None
    assert misplaced(PLAIN, run([("queries", 4), ("k", 4), ("v", 4)], [("norm", 1)]), ()) is None


def test_tensors_of_the_same_bytes_are_no_evidence_of_another_order():
    swapped = run([("k", 4), ("q", 4), ("v", 4)], [("norm", 1)])
    assert misplaced(PLAIN, swapped, ()).name == "2 of 4 parameters"
    assert misplaced(PLAIN, swapped, {"q"}) is None
