"""What stands in many places of report.json stands there once, and comes back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.reports import json as reports_json
from samebits.reports.json_refs import MIN_BYTES, MIN_TEXT, put_in, share
from tests.support.sample_report import sample_report

LONG = list(range(MIN_BYTES))


def written(value):
    """Share, write, read and put in again; returns that and what was written."""
    changed, shared = share(value)
    text = json.dumps(changed | {"shared": shared})
    return put_in(json.loads(text)), changed, shared


def test_what_is_met_twice_is_written_once():
    value = {"a": LONG, "b": [LONG, {"c": LONG}], "d": [*LONG, 1]}
    back, changed, shared = written(value)
    assert back == value
    ref = {"$ref": "#/shared/0"}
    assert changed == {"a": ref, "b": [ref, {"c": ref}], "d": [*LONG, 1]}
    assert shared == [LONG]


def test_what_is_inside_of_it_stands_before_it():
    inner = {"inner": LONG}
    outer = {"outer": [inner, "x"]}
    value = {"a": outer, "b": outer, "c": inner}
    back, changed, shared = written(value)
    assert back == value
    assert shared == [inner, {"outer": [{"$ref": "#/shared/0"}, "x"]}]
    assert changed == {
        "a": {"$ref": "#/shared/1"},
        "b": {"$ref": "#/shared/1"},
        "c": {"$ref": "#/shared/0"},
    }


@pytest.mark.parametrize(
    ("value", "n"),
    [
        ({"a": [1], "b": [1]}, 0),
        ({"a": "x" * (MIN_TEXT - 1), "b": "x" * (MIN_TEXT - 1)}, 0),
        ({"a": "x" * MIN_TEXT, "b": "x" * MIN_TEXT}, 1),
        ({"a": [*LONG, 1], "b": [*LONG, 1.0], "c": [*LONG, True]}, 0),
        ({"a": [*LONG, 0.0], "b": [*LONG, -0.0]}, 0),
        ({"a": {"x": 1, "y": LONG}, "b": {"y": LONG, "x": 1}}, 1),
    ],
    ids=["small", "short", "text", "other kinds of number", "other zeros", "other order"],
)
def test_what_is_shared(value, n):
    back, _, shared = written(value)
    assert repr(back) == repr(value)
    assert len(shared) == n


@pytest.mark.parametrize("key", ["$ref", "$$ref", "$$$ref", "ref", "$reference", "$"])
def test_a_key_of_its_own_is_no_reference(key):
    value = {"a": {key: LONG}, "b": {key: LONG}, "c": {key: "#/shared/0", "more": 1}}
    assert written(value)[0] == value


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
)
keys = st.text(max_size=3) | st.sampled_from(["$ref", "$$ref", "ref"])
nested = st.recursive(
    leaves | st.just(LONG) | st.just({"a": LONG}),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
)


@given(st.dictionaries(st.sampled_from("abcd"), nested))
def test_every_value_comes_back(value):
    before = repr(value)
    back, _, _ = written(value)
    assert repr(back) == before == repr(value)


def test_the_same_report_is_the_same_file_and_reads_back():
    report = sample_report()
    text = reports_json.render(report)
    assert text == reports_json.render(report)
    assert reports_json.read(text) == report
    told = json.loads(text)
    assert list(told)[-1] == "shared"
    whole = json.dumps(put_in(told), separators=(",", ":"))
    assert len(text) < 0.9 * len(whole)


def test_what_a_script_reads_first_stands_where_it_is():
    for row in json.loads(reports_json.render(sample_report()))["rows"]:
        assert isinstance(row["model"], str)
        for cell in row["cells"]:
            assert isinstance(cell["cell"]["stack"], str)
            assert isinstance(cell["verdict"], str)
            assert isinstance(cell["headline"], str)
