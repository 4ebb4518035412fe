"""Loads by other classes on two sides: what is accused, and what the verdict or another finding has."""

import pytest

from samebits.questions.classes.compare import differences
from samebits.questions.classes.records import ClassesSignal
from samebits.questions.classes.section import SECTION
from tests.support.asked import findings_of, report_of

READ = {
    "model_class": "BertModel",
    "n_tensors": 40,
    "n_left": 2,
    "elements": 1000,
    "elements_left": 20,
    "left": ("cls.bias", "cls.weight"),
    "n_fresh": 1,
    "fresh": ("pooler.weight",),
    "outputs": "same bits",
}
UNREAD = READ | {"n_left": 40, "elements_left": 1000, "n_fresh": 39, "outputs": "other bits"}
OTHER_BITS = READ | {"outputs": "other bits"}
OWN = {"model_class": "BertModel"}


def signal(load):
    return ClassesSignal.model_validate({"loads": {"AutoModel": load} if load else {}})


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (READ, UNREAD, "tensors"),
        (UNREAD, READ, "tensors"),
        (READ, OTHER_BITS, "outputs"),
        (OTHER_BITS, READ, "outputs"),
        (READ, READ | {"model_class": "BertEncoder"}, "class"),
        (READ, None, "class"),
        (READ, READ, None),
        (OWN, OWN, None),
        # a release that has a class more has nothing to answer for
        (None, READ, None),
        # both base models compute what that of the own class does not
        (OTHER_BITS, OTHER_BITS, None),
        (READ, READ | {"outputs": None}, None),
        # fused tensors are fewer, with the same elements
        (READ, READ | {"n_tensors": 30, "n_left": 1}, None),
        # the own class reads a tensor more or less, which this one has or has not
        (READ, READ | {"elements": 1100, "elements_left": 120}, None),
        (READ, READ | {"elements": 1100}, None),
        # SB931 and SB932
        (READ, {"model_class": "BertModel", "raised": "KeyError: 'x'"}, None),
        (READ, {"model_class": "BertModel", "left_out": "ImportError: timm"}, None),
    ],
)
def test_what_only_one_side_reads_is_accused(before, after, kind):
    found = [each.kind for each in differences(signal(before), signal(after))]
    assert found == ([kind] if kind else [])


def found_in(before, after):
    return findings_of("classes", signal(before), signal(after))


def test_findings_say_what_each_side_reads():
    found = found_in(UNREAD, READ)
    assert found.keys() == {"SB312"}
    assert found["SB312"].where == "AutoModel.from_pretrained"
    reference, candidate = found["SB312"].evidence
    assert reference.startswith("4.48: BertModel: 0 of 40 tensors read; 39 of its own missing")
    assert candidate.startswith("5.x: BertModel: 38 of 40 tensors read; 1 of its own missing")
    assert found_in(READ, OTHER_BITS).keys() == {"SB314"}
    assert found_in(READ, OWN | {"model_class": "BertEncoder"})["SB313"].evidence[1] == (
        "5.x: BertEncoder, the checkpoint's own class"
    )
    assert found_in(READ, None)["SB313"].evidence[1] == "5.x: no class for this config"
    assert not found_in(READ, READ)


def test_a_load_that_raises_on_one_side_is_named_with_its_exception():
    found = found_in(READ, {"model_class": "BertModel", "raised": "KeyError: 'planted'"})
    assert found.keys() == {"SB931"}
    assert "planted" in " ".join(found["SB931"].evidence)


def test_sections_say_what_each_side_reads():
    report = report_of("classes", signal(READ), signal(UNREAD))
    for text in (SECTION.of_run(report), SECTION.of_model(list(report.rows), report)):
        assert "AutoModel" in text
        assert "0 of 40 tensors read" in text
