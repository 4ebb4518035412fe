"""compat.json is what the report says, in ranges of releases."""

import json

import pytest

from samebits.records.compat import CompatFile
from samebits.records.ids import Verdict
from samebits.reports.formats import compat
from samebits.reports.formats.registry import render
from tests.support.zoo import zoo_report


@pytest.fixture(scope="module")
def zoo():
    return zoo_report()


@pytest.fixture(scope="module")
def by_name(zoo):
    return {(m.model, m.variant): m.ranges for m in compat.compat(zoo).models}


def test_the_ranges_of_a_row_hold_each_release_once(zoo, by_name):
    order = [stack.id for stack in zoo.stacks]
    for row in zoo.rows:
        held = []
        for each in by_name[row.model, row.variant]:
            held += order[order.index(each.first) : order.index(each.last) + 1]
        assert held == [cell.cell.stack for cell in row.cells]


def test_a_range_has_one_set_of_bits_or_none(zoo, by_name):
    for row in zoo.rows:
        does = {stack: band.does for band in row.bands for stack in band.stacks}
        judged = {cell.cell.stack: cell.judged for cell in row.cells}
        for each in by_name[row.model, row.variant]:
            assert bool(each.bits) == (each.state == "computes")
            if each.state == "computes":
                assert does[each.first] == each.bits
            if each.state == "raises":
                assert judged[each.first] is Verdict.FAILED


def test_a_fixed_release_is_not_wrong(by_name):
    before, *others = by_name["roberta", "float32-default"]
    assert (before.first, before.last, before.wrong) == ("4.48", "4.48", ("SB308",))
    assert [(r.step, r.findings, r.wrong) for r in others[:1]] == [("diverged", ("SB308",), ())]
    assert "SB308" in others[0].side


def test_a_release_that_raises_names_its_exception(by_name):
    before, after = by_name["t5", "float32-default"][:2]
    assert (before.state, after.state, after.step) == ("computes", "raises", "fails")
    assert after.what.startswith("IndexError in generate()")
    assert after.where


def test_a_new_type_is_no_change(by_name):
    absent, first = by_name["olmo3", "float32-default"][:2]
    assert (absent.state, absent.bits) == ("absent", "")
    assert (first.state, first.step, first.what) == ("computes", "new", "")


def test_a_model_that_keeps_its_bits_has_one_range(by_name):
    assert [(r.state, r.step) for r in by_name["bert", "float32-default"]] == [("computes", "")]


def test_the_file_is_read_again(zoo):
    text = render(zoo, ["compat"])["compat.json"]
    assert compat.MARK in text[:200]
    assert CompatFile.model_validate_json(text) == compat.compat(zoo)
    assert json.loads(text)["format_version"] == 1
