"""The order of a run: what a receipt and the command in a report follow from."""

from pathlib import Path
from typing import Annotated

import pytest

from samebits.matrix.plan import Selection
from samebits.pipeline.order import Order, Use


@pytest.mark.parametrize(
    ("options", "leaves_receipt"),
    [
        ({}, True),
        ({"causes": True, "releases": True, "capsules": "all"}, True),
        ({"level": "quick"}, True),
        ({"level": "deep"}, True),
        ({"jobs": 2, "reports": Path("r"), "matrix": Path("m.yaml")}, True),
        ({"selection": Selection(models=("llama",))}, True),
        ({"fresh": True}, False),
        ({"upgrade": True}, False),
        ({"kernels": {"MKL_CBWR": "COMPATIBLE"}}, False),
    ],
    ids=str,
)
def test_receipt_follows_from_the_options(options, leaves_receipt):
    assert Order(**options).leaves_receipt == leaves_receipt


def test_command_repeats_options_that_decide_what_the_report_shows():
    assert Order().repeated_words() == []
    order = Order(causes=True, releases=True, fresh=True, jobs=3, reports=Path("r"))
    assert order.repeated_words() == ["--releases", "--causes"]
    assert Order(level="deep", causes=True).repeated_words() == ["--deep", "--causes"]


class Wider(Order):
    """An order with new options: one says nothing of its use."""

    base_line: Path | None = None
    elsewhere: Annotated[Path | None, Use(receipt=False)] = None


def test_new_option_is_repeated_and_leaves_a_receipt():
    order = Wider(base_line=Path("old.json"))
    assert order.repeated_words() == ["--base-line", "old.json"]
    assert order.leaves_receipt


def test_new_option_that_writes_elsewhere_leaves_no_receipt():
    order = Wider(elsewhere=Path("junit.xml"))
    assert order.repeated_words() == ["--elsewhere", "junit.xml"]
    assert not order.leaves_receipt
