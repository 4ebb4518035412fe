"""Reports of earlier versions in the form of now."""

from __future__ import annotations

import pytest

from samebits.reports import earlier

BY_TRAINER = {"relation": "Trainer: rows accumulated = one batch", "reason": "no Trainer"}
BY_HAND = {"relation": "rows accumulated = one batch", "reason": "one row"}


@pytest.mark.parametrize(
    ("ways", "of_step", "of_trainer"),
    [
        ({"inapplicable": [BY_HAND]}, {"inapplicable": [BY_HAND]}, None),
        ({"inapplicable": [BY_TRAINER]}, {}, {"inapplicable": [BY_TRAINER]}),
        (
            {"relations": [BY_TRAINER], "inapplicable": [BY_HAND], "no_float64": "too large"},
            {"inapplicable": [BY_HAND], "no_float64": "too large"},
            {"relations": [BY_TRAINER], "no_float64": "too large"},
        ),
    ],
)
def test_ways_to_train_of_an_earlier_report_have_no_list_without_entries(ways, of_step, of_trainer):
    row = {"training": {"5.23": {"relations": ways, "trainer": {"loss": 1.0}}}}
    (raised,) = earlier.now({"rows": [row]})["rows"]
    answers = raised["answers"]
    assert answers["training"]["stacks"]["5.23"]["relations"] == of_step
    assert answers["trainer"]["stacks"]["5.23"]["relations"] == of_trainer
